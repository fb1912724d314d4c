"""Measuring a trained model."""

from sheafstate.evaluation.checkpoint import check_fit, load_checkpoint
from sheafstate.evaluation.likelihood import NotFiniteError, carries_state, evaluate, nats_by_position
from sheafstate.evaluation.metrics import Metrics

__all__ = ["Metrics", "NotFiniteError", "carries_state", "check_fit", "evaluate", "load_checkpoint", "nats_by_position"]
