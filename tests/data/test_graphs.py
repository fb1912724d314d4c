"""Annotated texts: words by where they begin, links of every kind between them."""

import json
from pathlib import Path

import numpy as np
import pytest

from sheafstate.data.graphs import LINKS, read_graphs
from sheafstate.errors import InputError

DOCUMENT = {
    "split": "dev",
    "text": "Ann saw Bo. She waved.",
    "off": [0, 3, 4, 7, 8, 10, 10, 11, 12, 15, 16, 21, 21, 22],
    "head": [1, -1, 1, 1, 5, -1, 5],
    "coref": [[4, 0, "ana"]],
    "bridge": [[2, 6]],
    "disc": [[5, 1, "joint"], [5, 5, "self"]],
    "def": [[4, 2]],
}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "graphs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def test_words_and_links_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"meta": True}, DOCUMENT, DOCUMENT | {"split": "train"})
    assert len(list(read_graphs(path))) == 2
    (graph,) = read_graphs(path, "dev")
    assert graph.words == ["Ann", "saw", "Bo", ".", "She", "waved", "."]
    found = {name: set() for name in LINKS}
    for later, earlier, kind in zip(graph.links.later, graph.links.earlier, graph.links.types, strict=True):
        found[LINKS[kind]].add((int(later), int(earlier)))
    assert found == {
        "syntax": {(1, 0), (2, 1), (3, 1), (5, 4), (6, 5)},
        "coreference": {(4, 0)},
        "bridging": {(6, 2)},
        "discourse": {(5, 1)},
        "definition": {(4, 2)},
    }
    assert graph.word_of(np.array([0, 3, 4, 10, 11, 21])).tolist() == [0, 0, 1, 3, 3, 6]


@pytest.mark.parametrize(
    "damaged",
    [
        {"text": "a"},
        {"text": "a", "off": []},
        {"text": "a", "off": [0]},
        {"text": "ab", "off": [1, 1]},
        {"text": "abc", "off": [0, 2, 1, 3]},
        {"text": "a", "off": [0, 4]},
        {"text": "a", "off": [0, 1], "head": [-1, 0]},
        [1],
        "x",
    ],
)
def test_what_is_no_annotated_text_is_refused(tmp_path: Path, damaged: object) -> None:
    with pytest.raises(InputError, match="line 2 of"):
        list(read_graphs(write(tmp_path, {"meta": True}, damaged)))


def test_a_link_to_no_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1 of"):
        list(read_graphs(write(tmp_path, DOCUMENT | {"coref": [[9, 0, "ana"]]})))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_graphs(tmp_path / "missing.jsonl"))
