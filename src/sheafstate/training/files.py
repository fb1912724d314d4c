"""Files that are either whole or not there: written beside their place, flushed, then renamed into it."""

import json
import os
from pathlib import Path
from typing import Any

from sheafstate.errors import InputError

__all__ = ["flush", "read_json", "replace", "write_json", "write_text"]


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a rename after it cannot overtake it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: Path, target: Path) -> None:
    """Rename a flushed file or folder to ``target``, taking the place of a file there, and flush the rename."""
    source.replace(target)
    flush(target.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file that no reader ever sees half of; a full disk leaves the one that was there."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        flush(beside)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    replace(beside, path)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as :func:`write_text` does."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        InputError: it is missing, or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
