"""Texts with known relations between their words: syntax, coreference, bridging, discourse, definitions.

A file has a JSON object a line. The first may say ``{"meta": true, …}``; every other is a document with ``text``,
``off`` (two characters a word: where it begins and where it ends) and any of ``head`` (the word that each word depends
on, −1 at a root), ``coref``, ``bridge``, ``disc`` and ``def`` (lists that begin with two words, in either order).
``split`` names its part.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sheafstate.edges import EdgeList
from sheafstate.errors import InputError

__all__ = ["LINKS", "TextGraph", "read_graphs"]

LINKS = ("syntax", "coreference", "bridging", "discourse", "definition")
_FIELDS = {"coref": "coreference", "bridge": "bridging", "disc": "discourse", "def": "definition"}


@dataclass(frozen=True, eq=False)
class TextGraph:
    """A text, where its words begin and end, and links between them: pairs (later, earlier) typed by :data:`LINKS`."""

    text: str
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    links: EdgeList

    @property
    def words(self) -> list[str]:
        """The words."""
        places = zip(self.begins.tolist(), self.ends.tolist(), strict=True)
        return [self.text[begin:end] for begin, end in places]

    def word_of(self, character: NDArray[np.int64]) -> NDArray[np.int64]:
        """The word that each character belongs to, the space behind a word being its own; −1 before the first."""
        return np.searchsorted(self.begins, character, side="right") - 1


def read_graphs(path: str | Path, split: str | None = None) -> Iterator[TextGraph]:
    """The documents of a file, in its order.

    Args:
        path: the file.
        split: of which part; all by default.

    Raises:
        InputError: the file is missing, or a line is no document.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    content = json.loads(line)
                    if content.get("meta") or (split is not None and content.get("split") != split):
                        continue
                    graph = _graph(content)
                except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                    raise InputError(f"line {number} of {path} is no text with relations: {error}") from error
                yield graph
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _graph(content: dict[str, Any]) -> TextGraph:
    places, heads = np.array(content["off"], np.int64), content.get("head") or ()
    if len(places) == 0 or len(places) % 2:
        raise ValueError("every word needs where it begins and where it ends")
    begins, ends = places[::2], places[1::2]
    if np.any(begins >= ends) or np.any(ends[:-1] > begins[1:]) or ends[-1] > len(content["text"]):
        raise ValueError("the words do not follow one another in the text")
    if heads and len(heads) != len(begins):
        raise ValueError(f"{len(heads)} words have a head, of {len(begins)}")
    links = [(word, head, 0) for word, head in enumerate(heads) if head >= 0]
    for field, name in _FIELDS.items():
        links += [(int(link[0]), int(link[1]), LINKS.index(name)) for link in content.get(field) or ()]
    pairs = sorted({(max(a, b), min(a, b), kind) for a, b, kind in links if a != b})
    later, earlier, kinds = (np.array(column, np.int64) for column in zip(*pairs, strict=True)) if pairs else _NONE
    return TextGraph(content["text"], begins, ends, EdgeList(later, earlier, kinds.astype(np.int8), LINKS, len(begins)))


_NONE = (np.zeros(0, np.int64),) * 3
