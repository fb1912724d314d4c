"""Training on ``transformers``' Trainer: one function, one record of options, one folder of results."""

from sheafstate.training.checkpoints import last_checkpoint
from sheafstate.training.options import SCHEDULES, TrainingOptions
from sheafstate.training.overrides import parse_overrides
from sheafstate.training.run import TrainingResult, train

__all__ = ["SCHEDULES", "TrainingOptions", "TrainingResult", "last_checkpoint", "parse_overrides", "train"]
