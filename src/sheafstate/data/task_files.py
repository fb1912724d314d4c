"""Files of two published tests, BLiMP and LAMBADA, as JSON lines that somebody has downloaded."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sheafstate.data.readers import read_json_objects
from sheafstate.errors import InputError

__all__ = ["as_dataset", "read_pairs", "read_passages", "task_file"]


def task_file(path: str | Path, name: str) -> Path:
    """The file itself, or the file ``name`` of a folder.

    Raises:
        InputError: there is none.
    """
    place = Path(path)
    file = place / name if place.is_dir() else place
    if not file.is_file():
        where = f"{place} holds no {name}" if place.is_dir() else f"{place} does not exist"
        raise InputError(f"{where}: give the file, or the folder that holds {name}")
    return file


def read_pairs(path: Path) -> dict[str, list[dict[str, str]]]:
    """Minimal pairs of sentences, by the paradigm that they belong to, in the order of the file.

    A line is either a paradigm, ``{"uid": ..., "pairs": [[good, bad], ...]}``, or a single pair as BLiMP publishes it,
    ``{"UID": ..., "sentence_good": ..., "sentence_bad": ...}``.

    Raises:
        InputError: the file cannot be read, or a line is neither of the two.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for place, row in read_json_objects(path):
        name = row.get("uid", row.get("UID"))
        pairs = row.get("pairs", [[row.get("sentence_good"), row.get("sentence_bad")]])
        if not isinstance(name, str) or not name or not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
            raise InputError(
                f"{place} is no paradigm of BLiMP: it needs the key 'uid' and under 'pairs' [good, bad] sentences"
            )
        found.setdefault(name, []).extend({"good": good, "bad": bad} for good, bad in pairs)
    if not any(found.values()):
        raise InputError(f"{path} holds no pair of sentences")
    return {name: pairs for name, pairs in found.items() if pairs}


def _is_pair(pair: Any) -> bool:
    """Two texts, neither empty; seven published pairs are twice the same sentence."""
    return isinstance(pair, list) and len(pair) == 2 and all(map(_is_text, pair))


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def read_passages(path: Path) -> list[dict[str, str]]:
    """Passages, ``{"text": ...}`` a line, parted at the last space: what is given, and a space with the word to guess.

    Raises:
        InputError: the file cannot be read, or a line has no text of two words.
    """
    rows = []
    for place, row in read_json_objects(path):
        text = row.get("text")
        given, space, word = str(text).rpartition(" ") if _is_text(text) else ("", "", "")
        if not given.strip() or not word.strip():
            raise InputError(f"{place} is no passage of LAMBADA: it needs under 'text' a text of at least two words")
        rows.append({"given": given, "target": space + word})
    if not rows:
        raise InputError(f"{path} holds no passage")
    return rows


def as_dataset(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows with the same keys as a ``datasets.Dataset`` in memory."""
    from datasets import Dataset

    return Dataset.from_list([dict(row) for row in rows])
