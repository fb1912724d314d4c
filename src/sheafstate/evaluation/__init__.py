"""Measuring a trained model."""

from sheafstate.evaluation.checkpoint import check_fit, load_checkpoint
from sheafstate.evaluation.likelihood import NotFiniteError, carries_state, evaluate, nats_by_position
from sheafstate.evaluation.metrics import Metrics
from sheafstate.evaluation.packaged import PACKAGED_MODELS, checkpoint_folder, is_packaged

__all__ = [
    "PACKAGED_MODELS",
    "Metrics",
    "NotFiniteError",
    "carries_state",
    "check_fit",
    "checkpoint_folder",
    "evaluate",
    "is_packaged",
    "load_checkpoint",
    "nats_by_position",
]
