"""Runs small enough to be made by the dozen, and commands called as the shell calls them."""

import contextlib
import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from sheafstate.cli import main
from sheafstate.data import read_documents
from sheafstate.training import TrainingOptions
from sheafstate.training.callbacks import read_history
from tests.training.conftest import BATCH, CONTEXT, SMALL, STEPS_OF_AN_EPOCH

__all__ = ["command", "contents", "losses", "options", "train_arguments", "write_page"]


def write_page(folder: Path) -> Path:
    """A few documents that fill the rows of an epoch of 13 steps and a little more."""
    text = read_documents("tinyshakespeare")[0]
    borders = [0, 3, 40, 300, 310, 500, STEPS_OF_AN_EPOCH * CONTEXT * BATCH - 7]
    path = folder / "page.txt"
    path.write_text("<|endoftext|>".join(text[begin:end] for begin, end in pairwise(borders)))
    return path


def options(page: Path, out: Path, **changes: Any) -> TrainingOptions:
    """A small run, measured on the page that it learns from."""
    small = {"data": page, "validation_data": page, "out": out, "overrides": SMALL, "context": CONTEXT}
    small |= {"batch_size": BATCH, "steps": 4, "log_every": 1, "learning_rate": 1e-2, "progress": False, "cpu": True}
    return TrainingOptions(**(small | changes))


def train_arguments(page: Path, out: Path, *more: object) -> list[str]:
    """The same run as a command line."""
    sizes = [part for name, value in SMALL.items() if name != "heads" for part in ("--set", f"{name}={value}")]
    heads = ["--set", 'heads={"local": 1, "memory": 1}']
    fixed = ["--context", CONTEXT, "--batch-size", BATCH, "--steps", 4, "--log-every", 1, "--lr", 1e-2, "--quiet"]
    places = ["--data", page, "--validation-data", page, "--out", out, "--cpu"]
    return [str(part) for part in ("train", *places, *fixed, *sizes, *heads, *more)]


def command(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as left:
            return int(left.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("a command always leaves with a status")


def contents(folder: Path, leave_out: Callable[[Path], bool] = lambda path: False) -> dict[str, bytes]:
    """Every file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not leave_out(path))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def losses(run: Path) -> list[dict[str, Any]]:
    """The history of a run without what depends on the clock."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(run / "history.jsonl")]
