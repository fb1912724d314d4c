"""``transformers``' Trainer with three things changed: what decays, how it measures, and how it saves."""

import shutil
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel, Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import TrainOutput

from sheafstate.errors import InputError
from sheafstate.training.checkpoints import STAGING, publish, reading, remove_older, saving
from sheafstate.training.validation import Validation

__all__ = ["LanguageModelTrainer", "decaying_parameters"]


_STACKED_VECTORS = ("conv_weight", "shift")
"""Parameters that are no matrices though they have two axes: a vector of taps a channel, of mixing weights a head."""


def decaying_parameters(model: nn.Module) -> list[str]:
    """Names of the parameters that weight decay shrinks: matrices and stacks of matrices.

    Vectors (norms, biases, decays, steps), embeddings and whatever carries ``_no_weight_decay`` keep their size.
    """
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim > 1
        and id(parameter) not in embeddings
        and name.rpartition(".")[2] not in _STACKED_VECTORS
        and not getattr(parameter, "_no_weight_decay", False)
    ]


class LanguageModelTrainer(Trainer):
    """Trainer for packed rows.

    Args:
        validation: what is measured on; ``None`` if there is nothing.
        keep_checkpoints: whole checkpoints that are kept.
        **arguments: as ``transformers.Trainer``.
    """

    model: PreTrainedModel

    def __init__(self, *, validation: Validation | None, keep_checkpoints: int, **arguments: Any) -> None:
        self.use_cache = arguments["model"].config.use_cache
        super().__init__(eval_dataset=validation, **arguments)
        self.validation = validation
        self.keep_checkpoints = keep_checkpoints
        self.measured: tuple[int, dict[str, float]] | None = None
        self._staging = False

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """See :func:`decaying_parameters`."""
        return decaying_parameters(model)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure the validation text, log the figures and tell the callbacks."""
        measured = self.measure()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
        metrics[f"{metric_key_prefix}_loss"] = measured["nats_per_token"]
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def measure(self) -> dict[str, float]:
        """Figures of the model as it is, computed once a step; none without a validation text."""
        if self.validation is None:
            return {}
        if self.measured is None or self.measured[0] != self.state.global_step:
            self.measured = self.state.global_step, self.validation.measure(self.model, self.accelerator)
        return dict(self.measured[1])

    def train(self, *arguments: Any, **options: Any) -> TrainOutput:
        """Train, and leave the model ready to decode: the Trainer switches its cache off for the time being."""
        try:
            return super().train(*arguments, **options)
        finally:
            self.model.config.use_cache = self.use_cache

    def take(self, checkpoint: Path) -> None:
        """Take a checkpoint as it is, with no step left to make: the Trainer itself would make one more."""
        self._load_from_checkpoint(str(checkpoint))
        self.state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        self.state.is_world_process_zero = self.is_world_process_zero()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with reading(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_rng_state(checkpoint)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        training, self.model.config.use_cache = self.model.config.use_cache, self.use_cache
        super()._save(output_dir, state_dict)
        self.model.config.use_cache = training

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Refuse a resume file of another model; a tied weight is in the file once, under its first name."""
        missing = set(load_result.missing_keys) - set(self.model._tied_weights_keys or ())
        odd = sorted(missing | set(load_result.unexpected_keys))
        if odd:
            raise InputError(
                f"the checkpoint holds another model than the one that is trained: they differ in {odd[0]}"
            )

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / STAGING) if self._staging else folder

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        run = Path(super()._get_output_dir(trial))
        staged = run / STAGING / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(run / STAGING, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._staging = True
        try:
            with saving(run, "checkpoint"):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
                if self.args.should_save:
                    (staged / "training_args.bin").unlink(missing_ok=True)  # a pickle that nothing reads
                    publish(staged, run / staged.name)
                    remove_older(run, self.keep_checkpoints)
        finally:
            self._staging = False
        self.accelerator.wait_for_everyone()
