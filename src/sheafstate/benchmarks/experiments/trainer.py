"""The Trainer of experiments: targets beside the inputs, no files, a log that stays in memory."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset
from transformers import (
    PreTrainedModel,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    default_data_collator,
)
from transformers.trainer_utils import SaveStrategy

from sheafstate.benchmarks.experiments.loss import readout_loss
from sheafstate.data import IGNORED, PackedRows
from sheafstate.training.arguments import training_arguments
from sheafstate.training.callbacks import Pace
from sheafstate.training.options import TrainingOptions
from sheafstate.training.trainer import LanguageModelTrainer

__all__ = ["ExperimentTrainer", "answer_logits", "fit"]

LOGS = 20


def answer_logits(model: PreTrainedModel, input_ids: Tensor, asked: Tensor) -> tuple[Tensor, Any]:
    """Logits at the positions that are asked for, shape (asked, V), and what the body of the model returned."""
    body = model.base_model(input_ids=input_ids, use_cache=False)
    return model.get_output_embeddings()(body.last_hidden_state[asked]).float(), body


class _StopWhenLost(TrainerCallback):
    """Ends a run whose loss is no number: what follows would be none either."""

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Look at the last loss."""
        if not math.isfinite(state.log_history[-1].get("loss", 0.0)):
            control.should_training_stop = True
        return control


class ExperimentTrainer(LanguageModelTrainer):
    """Trains on the loss of :func:`readout_loss`, so that every model is trained on the same one."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """The likelihood at the targets that stand beside the inputs, else at the labels, one position on."""
        read = {name: value for name, value in inputs.items() if name not in ("targets", "labels")}
        targets = inputs.get("targets")
        if targets is None:
            targets = functional.pad(inputs["labels"][:, 1:], (0, 1), value=IGNORED)
        asked = targets != IGNORED
        with self.accelerator.autocast():  # which it puts around the whole model's forward pass alone
            body = model.base_model(**read, use_cache=False)
        loss = readout_loss(body.last_hidden_state[asked], model.get_output_embeddings().weight, targets[asked])
        balance = getattr(body, "aux_loss", None)
        if balance is not None:
            loss = loss + model.config.router_aux_loss_coef * (balance - balance.detach())
        return loss


def fit(
    model: PreTrainedModel,
    rows: Dataset,
    out: Path,
    *,
    steps: int,
    batch_size: int,
    rate: float,
    seed: int,
    bf16: bool = False,
) -> list[tuple[int, float | None]]:
    """Train with AdamW and a cosine after a warm-up; return the logged losses, each a mean since the last log.

    A loss that is no number ends the training; it is the last one in the list, as ``None``.
    """
    options = TrainingOptions(
        data="",
        out=out,
        validation_share=0.0,
        steps=steps,
        batch_size=batch_size,
        learning_rate=rate,
        seed=seed,
        bf16=bf16,
        log_every=max(1, steps // LOGS),
        cpu=True,
        progress=False,
    )
    arguments = training_arguments(options)
    arguments.save_strategy = SaveStrategy.NO
    trainer = ExperimentTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        validation=None,
        keep_checkpoints=1,
        data_collator=default_data_collator,
        callbacks=[_StopWhenLost(), *([Pace(rows)] if isinstance(rows, PackedRows) else [])],
    )
    trainer.remove_callback(PrinterCallback)
    torch.manual_seed(seed)
    trainer.train()
    log = [(int(entry["step"]), entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return [(step, loss if math.isfinite(loss) else None) for step, loss in log]
