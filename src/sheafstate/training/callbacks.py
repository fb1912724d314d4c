"""What happens beside the steps: where rows lie, when to log, the history, a stop where the loss is lost."""

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from sheafstate.data import PackedRows
from sheafstate.errors import InputError
from sheafstate.training.files import write_text

__all__ = ["History", "Pace", "read_history"]


class Pace(TrainerCallback):
    """Places an epoch's rows, logs wherever a checkpoint is saved, and measures at the end.

    The logged loss is a mean over the steps since the last log. Without a log at a save, a resumed run would take the
    first mean over fewer steps than a straight one.
    """

    def __init__(self, rows: PackedRows) -> None:
        self.rows = rows

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the intervals from this run's arguments, not from those of the run that is resumed."""
        state.compute_steps(args, state.max_steps)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Shift the rows as the epoch has it."""
        self.rows.set_epoch(int(state.epoch or 0))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Ask for a log where a checkpoint will be saved, and for a measurement at the end."""
        if control.should_save:
            control.should_log = True
        if state.global_step >= state.max_steps and args.eval_strategy != "no":
            control.should_evaluate = True
        return control


class History(TrainerCallback):
    """Writes what is logged to ``history.jsonl``, one object a line, and stops a run whose loss is no number.

    Args:
        path: the file; lines past the step that is resumed from are dropped.
        tokens_per_step: tokens of a step, over all processes.
    """

    def __init__(self, path: Path, tokens_per_step: int) -> None:
        self.path = path
        self.tokens_per_step = tokens_per_step
        self.earlier = 0.0
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, the parts before a resume included."""
        return self.earlier + time.monotonic() - self.began

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the lines up to the step that the run goes on from."""
        self.go_on(state)

    def go_on(self, state: TrainerState) -> None:
        """Take up the file and the clock at a step."""
        kept = [record for record in read_history(self.path) if record["step"] <= state.global_step]
        self.earlier = kept[-1]["seconds"] if kept else 0.0
        self.began = time.monotonic()
        if state.is_world_process_zero:
            write_text(self.path, "".join(json.dumps(record) + "\n" for record in kept))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write one line.

        Raises:
            InputError: the loss is not finite.
        """
        figures = _figures(logs or {})
        for name in ("loss", "val_nats_per_token"):
            if not math.isfinite(figures.get(name, 0.0)):
                raise InputError(
                    f"the training ran away: {name} is {figures[name]} at step {state.global_step}; "
                    "try a lower learning rate or a longer warm-up"
                )
        if figures and state.is_world_process_zero:
            place = {"step": state.global_step, "tokens": state.global_step * self.tokens_per_step}
            record = place | {"epoch": state.epoch, "seconds": round(self.seconds, 3)} | figures
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Records of a history, oldest first, up to a line that a kill cut short or that is damaged."""
    records = []
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            record = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            break
        if not _is_record(record):
            break
        records.append(record)
    return records


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), int | float) for name in ("step", "seconds"))


def _figures(logs: dict[str, Any]) -> dict[str, float]:
    """The figures of a log that are kept, under our names."""
    names = {
        "loss": "loss",
        "learning_rate": "learning_rate",
        "grad_norm": "grad_norm",
        "eval_nats_per_token": "val_nats_per_token",
        "eval_bits_per_byte": "val_bits_per_byte",
    }
    return {ours: float(logs[theirs]) for theirs, ours in names.items() if theirs in logs}
