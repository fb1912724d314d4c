"""What a training run is asked to do: one record, checked before anything is read."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sheafstate.data import END_OF_TEXT
from sheafstate.errors import InputError

__all__ = ["SCHEDULES", "TrainingOptions"]

SCHEDULES = {"cosine": "cosine", "wsd": "warmup_stable_decay", "constant": "constant_with_warmup"}
"""Our name of a schedule → transformers' own."""

MOST, MOST_SEED, MOST_THREADS = 2**31 - 1, 2**32 - 1, 2**10
_MOST_NUMBER = sys.float_info.max

_SWITCHES = ("resume", "overwrite", "bf16", "compile", "gradient_checkpointing", "cpu", "progress")
_AT_LEAST_ONE = ("steps", "batch_size", "accumulate", "log_every", "save_every", "keep_checkpoints")
_FREE_TO_CHANGE = frozenset(
    {
        "data",
        "validation_data",
        "out",
        "resume",
        "overwrite",
        "steps",
        "threads",
        "progress",
        "log_every",
        "validate_every",
        "save_every",
    }
    | {"keep_checkpoints", "accumulate", "compile", "gradient_checkpointing", "cpu"}
)


@dataclass(frozen=True)
class TrainingOptions:
    """A training run.

    Attributes:
        data: text to learn from; see :func:`sheafstate.data.read_documents`.
        out: folder that the run is written to.
        validation_data: text to measure on; else part of ``data``, see :func:`sheafstate.data.read_corpus`.
        validation_share: the part of ``data`` that is measured on, by position; 0 for none.
        separator: what stands between the documents of a text file.
        text_field: key or column that holds the text, in JSON lines and datasets.
        tokenizer: ``byte``, ``char``, ``bpe:N`` or the folder of a saved tokenizer.
        preset: size of the model.
        overrides: fields of the configuration that differ from the preset's.
        steps: optimiser steps in all, those before a resume included.
        batch_size: rows of a step, over all processes and accumulated parts.
        context: tokens of a row.
        learning_rate: its peak.
        schedule: ``cosine`` (to zero), ``wsd`` (constant, then to zero over the last ``decay`` of the steps) or
            ``constant``; all after a linear warm-up.
        warmup: steps of the warm-up, as a share of all steps.
        decay: share of all steps in which ``wsd`` falls to zero.
        weight_decay: decoupled, on matrices alone.
        beta2: AdamW's decay of the second moments; that of the first is 0.9.
        max_grad_norm: gradients are scaled down to this norm.
        accumulate: parts into which each process cuts its rows of a step.
        log_every, validate_every, save_every: steps between two of each; ``validate_every`` ``None`` is a quarter of
            all steps.
        keep_checkpoints: whole checkpoints kept; older ones are removed.
        seed: of weights, order of the rows and everything else that is drawn.
        resume: go on from the last whole checkpoint in ``out``, or begin if there is none.
        overwrite: remove a run that is in ``out``.
        bf16: compute in bfloat16 where that is safe.
        compile: compile the model with the default backend.
        gradient_checkpointing: trade a second forward pass for memory.
        threads: CPU threads; ``None`` leaves them as they are.
        cpu: stay on the CPU where there is an accelerator.
        progress: show a progress bar.

    Raises:
        InputError: a value is impossible; the sentence names it and what is allowed.
    """

    data: str | Path
    out: str | Path
    validation_data: str | Path | None = None
    validation_share: float = 0.1
    separator: str | None = END_OF_TEXT
    text_field: str = "text"
    tokenizer: str | Path = "byte"
    preset: str = "tiny"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 2000
    batch_size: int = 16
    context: int = 256
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    warmup: float = 0.05
    decay: float = 0.2
    weight_decay: float = 0.1
    beta2: float = 0.95
    max_grad_norm: float = 1.0
    accumulate: int = 1
    log_every: int = 10
    validate_every: int | None = None
    save_every: int = 500
    keep_checkpoints: int = 2
    seed: int = 0
    resume: bool = False
    overwrite: bool = False
    bf16: bool = False
    compile: bool = False
    gradient_checkpointing: bool = False
    threads: int | None = None
    cpu: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for name in _AT_LEAST_ONE:
            _whole(name, getattr(self, name), 1)
        _whole("context", self.context, 2)
        _whole("seed", self.seed, 0, MOST_SEED)
        if self.validate_every is not None:
            _whole("validate_every", self.validate_every, 1)
        if self.threads is not None:
            _whole("threads", self.threads, 1, MOST_THREADS)
        _number("learning_rate", self.learning_rate, above=0)
        _number("max_grad_norm", self.max_grad_norm, above=0)
        _number("weight_decay", self.weight_decay, least=0)
        for name in ("validation_share", "warmup", "decay", "beta2"):
            _number(name, getattr(self, name), least=0, below=1)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if not isinstance(self.schedule, str) or self.schedule not in SCHEDULES:
            raise InputError(f"schedule must be one of {', '.join(SCHEDULES)}, not {self.schedule!r}")
        if self.resume and self.overwrite:
            raise InputError("a run is either resumed or overwritten, not both")
        if self.batch_size % self.accumulate:
            raise InputError(f"batch_size ({self.batch_size}) must be a multiple of accumulate ({self.accumulate})")

    def record(self) -> dict[str, Any]:
        """The options as JSON can hold them."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        plain["overrides"] = dict(self.overrides)
        return {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}

    def fixed(self) -> dict[str, Any]:
        """The part of :meth:`record` that a resumed run must share with the one before it.

        Where the text lies is not in it, so that a run can be moved: the texts themselves are compared.
        """
        return {name: value for name, value in self.record().items() if name not in _FREE_TO_CHANGE}


def _whole(name: str, value: object, least: int, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
    if value > most:
        raise InputError(f"{name} must be a whole number of at most {most}, not {value!r}")


def _number(
    name: str, value: Any, *, least: float | None = None, above: float | None = None, below: float = _MOST_NUMBER
) -> None:
    bound = f"of at least {least}" if least is not None else f"above {above}"
    limit = "" if below == _MOST_NUMBER else f" and below {below}"
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and (least is None or value >= least) and (above is None or value > above) and value < below):
        raise InputError(f"{name} must be a number {bound}{limit}, not {value!r}")
