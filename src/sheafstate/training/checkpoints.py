"""Checkpoints that are whole or not there.

``transformers`` writes a checkpoint file by file into its place, so that a kill leaves half of one. Here it is written
in a staging folder, gets a list of its files and their sizes, and is then renamed into its place. A checkpoint counts
only if that list is there and right, so that a copy that was cut short, or a removal that was, is not taken for one.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from sheafstate.errors import InputError
from sheafstate.training.files import flush, read_json, replace, write_json

__all__ = ["STAGING", "check_state", "is_whole", "last_checkpoint", "publish", "reading", "remove_older", "saving"]

STAGING = ".saving"
"""Folder inside a run in which checkpoints and exports are written before they are whole."""

_MANIFEST = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def publish(staged: Path, target: Path) -> None:
    """Move a folder that was written completely to its place, replacing what is there."""
    sizes = {str(path.relative_to(staged)): path.stat().st_size for path in staged.rglob("*") if path.is_file()}
    for name in sizes:
        flush(staged / name)
    write_json(staged / _MANIFEST, sizes)
    flush(staged)
    if target.exists():
        shutil.rmtree(target)
    replace(staged, target)


def is_whole(checkpoint: Path) -> bool:
    """Whether every file of a checkpoint is there with the size it was written with."""
    try:
        sizes = read_json(checkpoint / _MANIFEST)
        return bool(sizes) and all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (ValueError, OSError, AttributeError):  # no JSON, no table, a name that no file can have
        return False


def last_checkpoint(run: Path) -> Path | None:
    """The whole checkpoint with the most steps, if there is one."""
    return next((folder for folder in _newest_first(run) if is_whole(folder)), None)


def check_state(checkpoint: Path) -> None:
    """Raise an :class:`InputError` unless the Trainer's state can be read and is that of the checkpoint's step."""
    with reading(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if state.global_step != int(checkpoint.name.rpartition("-")[2]):
            raise ValueError(f"{TRAINER_STATE_NAME} is of step {state.global_step}")


@contextmanager
def reading(checkpoint: str | Path | None) -> Iterator[None]:
    """Turn whatever a damaged resume file leads a library into to a sentence.

    Raises:
        InputError: the body could not read a file of the checkpoint.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # archives, pickles and JSON fail in ways of their own
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"the checkpoint {checkpoint} cannot be resumed from ({lines[0]}); without its folder, the run goes on "
            "from the one before"
        ) from error


def remove_older(run: Path, keep: int) -> None:
    """Remove all but the last ``keep`` whole checkpoints; what is not whole does not count, and goes too."""
    kept = [folder for folder in _newest_first(run) if is_whole(folder)][:keep]
    for folder in _newest_first(run):
        if folder not in kept:
            (folder / _MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)


@contextmanager
def saving(run: Path, what: str) -> Iterator[None]:
    """Turn a failure to write, such as a full disk, into a sentence; clear the staging folder after it.

    Raises:
        InputError: the body could not write; what was saved before is as it was.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        shutil.rmtree(run / STAGING, ignore_errors=True)
        kept = last_checkpoint(run)
        rest = f"the last whole checkpoint is {kept}" if kept else "there is no earlier checkpoint"
        raise InputError(f"the {what} could not be written to {run} ({error}); {rest}") from error


def _newest_first(run: Path) -> Iterator[Path]:
    folders = [(int(match[1]), path) for path in run.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    for _, path in sorted(folders, reverse=True):
        if path.is_dir():
            yield path
