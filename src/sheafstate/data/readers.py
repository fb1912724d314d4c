"""One file, one reader: plain text, JSON lines, and a dataset that was saved to disk.

Every reader takes bytes as they are: line ends are kept, and what is not UTF-8 is refused rather than replaced, so
that a token stream can be turned back into the very text it came from.
"""

import codecs
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from sheafstate.errors import InputError

__all__ = [
    "END_OF_TEXT",
    "DatasetTexts",
    "is_dataset",
    "is_json_lines",
    "read_json_lines",
    "read_json_objects",
    "read_text",
]

END_OF_TEXT = "<|endoftext|>"
"""The mark between documents, in text files and in the vocabulary."""

_JSON_LINES = {".jsonl", ".ndjson"}


def is_json_lines(path: Path) -> bool:
    """Whether a file's name says that it holds JSON lines."""
    return path.suffix.lower() in _JSON_LINES


def is_dataset(path: Path) -> bool:
    """Whether a folder holds what ``datasets`` writes with ``save_to_disk``."""
    return (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def _decode(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        raise InputError(f"{path} is not text: byte {raw.index(0)} is zero, as in a binary file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte {error.start} is {raw[error.start]:#04x}") from error


def read_text(path: Path, separator: str | None = END_OF_TEXT) -> list[str]:
    """Documents of a text file, empty ones left out.

    Args:
        path: a UTF-8 file.
        separator: what stands between documents; a line break directly before or after it belongs to it. ``None``
            or an empty string makes the whole file one document.

    Raises:
        InputError: the file cannot be read, or is not UTF-8 text.
    """
    text = _decode(path)
    if not separator or separator not in text:
        return [text] if text else []
    parts = text.split(separator)
    last = len(parts) - 1
    trimmed = (_trim(part, before=number > 0, after=number < last) for number, part in enumerate(parts))
    return [part for part in trimmed if part]


def _trim(part: str, *, before: bool, after: bool) -> str:
    """Take off the line break next to a separator that stands before or after ``part``."""
    if before:
        part = part.removeprefix("\r\n") if part.startswith("\r\n") else part.removeprefix("\n")
    if after:
        part = part.removesuffix("\r\n") if part.endswith("\r\n") else part.removesuffix("\n")
    return part


def read_json_lines(path: Path, field: str = "text") -> list[str]:
    """Documents of a file with one JSON object a line, empty ones left out.

    Args:
        path: a UTF-8 file; blank lines are skipped.
        field: the key whose value is the document.

    Raises:
        InputError: a line is not a JSON object, or has no such text; the sentence names the line.
    """
    texts = (_text_of(row, field, place) for place, row in read_json_objects(path, f"an object with the key {field!r}"))
    return [text for text in texts if text]


def read_json_objects(path: Path, wanted: str = "an object") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file with one a line, each with the place it was found at, for messages.

    Args:
        path: a UTF-8 file; blank lines are skipped.
        wanted: what a line should have held, for messages.

    Raises:
        InputError: a line is not a JSON object; the sentence names the line.
    """
    for number, line in enumerate(_decode(path).split("\n"), start=1):  # other breaks are legal inside a JSON string
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{place} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InputError(f"{place} holds a {type(row).__name__}, not {wanted}")
        yield place, row


def _text_of(row: dict[str, Any], field: str, place: str) -> str:
    text = row.get(field)
    if not isinstance(text, str):
        keys = ", ".join(map(repr, row)) or "none"
        raise InputError(f"{place} has no text under {field!r} (its keys: {keys})")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"{place} holds half of a surrogate pair, which no text contains") from error
    return text


class DatasetTexts(Sequence[str]):
    """The texts of a Hugging Face dataset, read from its memory-mapped files when they are asked for.

    Args:
        dataset: a ``datasets.Dataset``.
        field: the column that holds the documents.
    """

    def __init__(self, dataset: Any, field: str) -> None:
        self.dataset = dataset
        self.field = field

    def __len__(self) -> int:
        return len(self.dataset)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "DatasetTexts": ...
    def __getitem__(self, index: int | slice) -> "str | DatasetTexts":
        if isinstance(index, slice):
            rows = range(*index.indices(len(self)))
            return DatasetTexts(self.dataset.select(rows), self.field)
        return self.dataset[index][self.field] or ""

    def __iter__(self) -> Iterator[str]:
        for rows in self.dataset.iter(batch_size=1000):
            yield from (text or "" for text in rows[self.field])
