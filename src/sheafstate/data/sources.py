"""Where documents come from: a file, a folder, a dataset on disk, or the text that is packaged."""

from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

from sheafstate.data.readers import (
    END_OF_TEXT,
    DatasetTexts,
    is_dataset,
    is_json_lines,
    read_json_lines,
    read_text,
)
from sheafstate.errors import InputError

__all__ = ["PACKAGED", "read_documents"]

PACKAGED = ("tinyshakespeare",)
"""Texts that come with the package and are known by name."""


def read_documents(
    source: str | Path, *, separator: str | None = END_OF_TEXT, field: str = "text", split: str | None = None
) -> Sequence[str]:
    """The documents of a source, in an order that depends on the source alone.

    Args:
        source: a text file, a JSON-lines file, a folder of such files (read recursively, sorted by path; hidden files
            are left out), a folder written by ``datasets``' ``save_to_disk``, or the name of a packaged text.
        separator: what stands between the documents of a text file; see :func:`~sheafstate.data.readers.read_text`.
        field: key of JSON lines, or column of a dataset, that holds the text.
        split: which part of a dataset that has several; ``train`` by default.

    Returns:
        Texts, none of them empty (a dataset's empty rows stay, as empty strings).

    Raises:
        InputError: the source is missing, holds no text, or is not text.
    """
    if str(source) in PACKAGED:
        return [_packaged(str(source))]
    path = Path(source)
    if not _exists(path):
        names = ", ".join(PACKAGED)
        raise InputError(f"{source} does not exist (data is a file, a folder, or the name of a packaged text: {names})")
    documents: Sequence[str]
    if path.is_dir() and is_dataset(path):
        documents = _from_dataset(path, field, split)
    elif path.is_dir():
        documents = list(chain.from_iterable(_read_file(file, separator, field) for file in _files(path)))
    else:
        documents = _read_file(path, separator, field)
    if not any(documents):
        raise InputError(f"{source} holds no text")
    return documents


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no file can have that name
        return False


def _packaged(name: str) -> str:
    return resources.files("sheafstate.data").joinpath("texts", f"{name}.txt").read_text(encoding="utf-8")


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden:
            yield path


def _read_file(path: Path, separator: str | None, field: str) -> list[str]:
    return read_json_lines(path, field) if is_json_lines(path) else read_text(path, separator)


def _from_dataset(path: Path, field: str, split: str | None) -> DatasetTexts:
    dataset = load_dataset(path)
    if isinstance(dataset, dict):
        wanted = split or "train"
        if wanted not in dataset:
            raise InputError(f"{path} has no split {wanted!r} (it has {', '.join(dataset)})")
        dataset = dataset[wanted]
    kind = dataset.features.get(field)
    if kind is None or getattr(kind, "dtype", None) not in ("string", "large_string"):
        raise InputError(f"{path} has no text column {field!r} (its columns: {', '.join(dataset.column_names)})")
    return DatasetTexts(dataset, field)


def load_dataset(path: Path) -> Any:
    """A ``Dataset``, or a ``DatasetDict`` of splits, from its folder; memory-mapped.

    Raises:
        InputError: the folder is damaged.
    """
    from datasets import load_from_disk

    try:
        dataset = load_from_disk(str(path))
        for part in dataset.values() if isinstance(dataset, dict) else [dataset]:
            part.data.validate(full=True)  # Arrow maps a file as it is; damage would show as wild reads
        return dataset
    except Exception as error:  # Arrow, JSON and schema faults have no common class
        raise InputError(f"{path} is not a dataset that can be read: {error}") from error
