"""A training run from its options to the figures."""

import inspect
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)
from transformers.integrations import TensorBoardCallback

from sheafstate.data import PackedRows
from sheafstate.errors import InputError
from sheafstate.training.arguments import training_arguments
from sheafstate.training.callbacks import History, Pace
from sheafstate.training.checkpoints import STAGING, check_state, last_checkpoint
from sheafstate.training.corpus import RunData, prepare_data
from sheafstate.training.export import EXPORTED, count_parameters, describe_machine, export
from sheafstate.training.files import read_json, replace, write_json
from sheafstate.training.model import ModelFactory, build_model
from sheafstate.training.options import TrainingOptions
from sheafstate.training.progress import ProgressBar, quiet
from sheafstate.training.trainer import LanguageModelTrainer
from sheafstate.training.validation import Validation

__all__ = ["TrainingResult", "train"]

_OPTIONS, _HISTORY, _METRICS, _LOGS, _DATA = "options.json", "history.jsonl", "metrics.json", "logs", "data"


@dataclass(frozen=True)
class TrainingResult:
    """What a run made.

    Attributes:
        out: its folder; ``from_pretrained`` loads it.
        model: the trained model.
        tokenizer: the tokenizer that fits it.
        metrics: what ``metrics.json`` holds.
        is_main: whether this is the process that wrote the folder.
    """

    out: Path
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    metrics: dict[str, Any]
    is_main: bool


def train(
    options: TrainingOptions,
    *,
    build: ModelFactory = build_model,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainingResult:
    """Train a language model and leave checkpoint, figures and history in ``options.out``.

    Started by ``torchrun`` or ``accelerate launch`` the processes share each step's rows; ``out`` must be a folder
    that all of them see.

    Args:
        options: the run.
        build: makes the untrained model; a Sheaf-State model of the options' preset by default.
        callbacks: more of ``transformers``' callbacks.

    Raises:
        InputError: bad data or options, a folder in use, a loss that is no number, a full disk.
    """
    out = Path(options.out)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    arguments = training_arguments(options)
    with arguments.main_process_first(local=False):
        resume_from = _look(options, out)
        data = prepare_data(options, out / STAGING / _DATA if options.overwrite else out / _DATA)
    set_seed(options.seed)
    model = build(options, data.tokenizer)
    rows = _rows(options, data, model)
    if options.compile:
        _require_compiler()
    if arguments.process_index == 0:
        _begin(options, out)
    history = History(out / _HISTORY, tokens_per_step=options.batch_size * options.context)
    trainer = LanguageModelTrainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        validation=_validation(options, data, arguments),
        keep_checkpoints=options.keep_checkpoints,
        data_collator=default_data_collator,
        processing_class=data.tokenizer,
        callbacks=[Pace(rows), history, *_tensorboard(arguments, out, resume_from), *callbacks],
    )
    trainer.remove_callback(PrinterCallback)
    if options.compile:
        model.compile(dynamic=False)  # in place, for the one shape that rows have; what measures is not compiled
    with quiet(), ProgressBar(enabled=options.progress) as progress:
        trainer.add_callback(progress)
        if resume_from is not None and _steps(resume_from) >= options.steps:
            trainer.take(resume_from)
            history.go_on(trainer.state)
        else:
            trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
        metrics = _measure(trainer, options, history)
        if arguments.process_index == 0:
            export(model, data.tokenizer, out)
            write_json(out / _METRICS, metrics)
    trainer.accelerator.wait_for_everyone()
    return TrainingResult(out, model, data.tokenizer, metrics, is_main=arguments.process_index == 0)


def _look(options: TrainingOptions, out: Path) -> Path | None:
    """Check that the run's folder may be used; return the checkpoint to go on from. Nothing is changed yet."""
    record = out / _OPTIONS
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; a run needs a folder")
    if options.resume and record.is_file():
        _same_run(options, read_json(record))
    elif record.is_file() and not options.overwrite:
        raise InputError(f"{out} holds a run already: resume it, overwrite it, or take another folder")
    resume_from = last_checkpoint(out) if options.resume else None
    if resume_from is not None:
        check_state(resume_from)
    return resume_from


def _begin(options: TrainingOptions, out: Path) -> None:
    """Make the folder this run's, now that nothing in the options can be wrong any more."""
    if options.overwrite:
        _remove_run(out)
        replace(out / STAGING / _DATA, out / _DATA)
        shutil.rmtree(out / STAGING)
    write_json(out / _OPTIONS, options.record())


def _same_run(options: TrainingOptions, earlier: Any) -> None:
    if not isinstance(earlier, dict):
        raise InputError(f"{Path(options.out) / _OPTIONS} holds no options, so that the run cannot be resumed")
    for name, value in options.fixed().items():
        if name in earlier and earlier[name] != value:
            raise InputError(f"a resumed run must keep {name}: it was {earlier[name]!r}, now it is {value!r}")


def _remove_run(out: Path) -> None:
    """Remove what a run writes, and nothing else that may lie in the folder."""
    for name in (_LOGS, _DATA):
        shutil.rmtree(out / name, ignore_errors=True)
    for folder in out.glob("checkpoint-*"):
        shutil.rmtree(folder)
    for name in (_OPTIONS, _HISTORY, _METRICS, *EXPORTED):
        (out / name).unlink(missing_ok=True)


def _rows(options: TrainingOptions, data: RunData, model: PreTrainedModel) -> PackedRows:
    """Training rows, with documents told apart in the way that the model knows."""
    knows_ids = "document_ids" in inspect.signature(model.forward).parameters
    documents = "document_ids" if knows_ids else "position_ids"
    rows = PackedRows(data.train, options.context, seed=options.seed, documents=documents)
    if len(rows) < options.batch_size:
        raise InputError(
            f"the training text gives {len(rows)} rows of {options.context} tokens, fewer than a batch of "
            f"{options.batch_size}: give more text, a smaller context or a smaller batch"
        )
    return rows


def _validation(options: TrainingOptions, data: RunData, arguments: TrainingArguments) -> Validation | None:
    if data.validation is None:
        return None
    return Validation(data.validation, options.context, rows=2 * arguments.per_device_train_batch_size)


def _steps(checkpoint: Path) -> int:
    """Steps that a checkpoint was saved after."""
    return int(checkpoint.name.rpartition("-")[2])


def _tensorboard(arguments: TrainingArguments, out: Path, resume_from: Path | None) -> list[TrainerCallback]:
    """A log in the run's folder; what a resumed run did past its checkpoint is taken out of it."""
    if arguments.process_index:
        return []
    past = _steps(resume_from) + 1 if resume_from else None
    return [TensorBoardCallback(SummaryWriter(str(out / _LOGS), purge_step=past))]


def _require_compiler() -> None:
    if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++", "cl")):
        raise InputError("compiling a model needs a C++ compiler (g++ or clang++), and there is none")


def _measure(trainer: LanguageModelTrainer, options: TrainingOptions, history: History) -> dict[str, Any]:
    """The figures of ``metrics.json``."""
    seconds = history.seconds
    figures = trainer.measure()
    return {
        "val_nats_per_token": figures.get("nats_per_token"),
        "val_bits_per_byte": figures.get("bits_per_byte"),
        "steps": trainer.state.global_step,
        "train_tokens": trainer.state.global_step * history.tokens_per_step,
        "seconds": round(seconds, 3),
        **count_parameters(trainer.model),
        "seed": options.seed,
        "processes": trainer.args.world_size,
        **describe_machine(),
    }
