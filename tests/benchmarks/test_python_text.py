"""Python to learn from, and held-out files with their definitions."""

from pathlib import Path

import pytest

from sheafstate.benchmarks.python_text import main, write_python_text
from sheafstate.data.graphs import read_graphs
from sheafstate.errors import InputError


def library(folder: Path, files: int) -> Path:
    for number in range(files):
        place = folder / ("tests" if number % 4 == 0 else "package")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"m{number}.py").write_text(f"name{number} = {number}\nprint(name{number})\n", encoding="utf-8")
    (folder / "damaged.py").write_text("def f(:\n")
    (folder / "latin.py").write_bytes(b"x = '\xe4'\n")
    return folder


def test_every_file_is_in_one_part_and_held_out_ones_have_their_links(tmp_path: Path) -> None:
    source = library(tmp_path / "lib", 200)
    sizes = write_python_text(tmp_path / "out", source, 10_000_000)
    texts = {
        part: (tmp_path / "out" / f"{part}.txt").read_text(encoding="utf-8") for part in ("train", "valid", "test")
    }
    assert sizes["train.txt"] > 5 * sizes["test.txt"] > 0
    for number in range(200):
        places = [part for part, text in texts.items() if f"name{number} = " in text]
        assert len(places) == (0 if number % 4 == 0 else 1)
    graphs = list(read_graphs(tmp_path / "out" / "graphs.jsonl"))
    assert all(len(graph.links) == 1 and graph.text in texts["valid"] + texts["test"] for graph in graphs)
    assert len(graphs) == sum(texts[part].count("print") for part in ("valid", "test"))
    again = write_python_text(tmp_path / "again", source, 10_000_000)
    assert again == sizes
    short = write_python_text(tmp_path / "short", source, 1000)
    assert short["train.txt"] <= 1000
    assert short["test.txt"] == sizes["test.txt"]


def test_the_command_says_what_it_wrote_or_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = library(tmp_path / "lib", 200)
    assert main([str(tmp_path / "out"), "--source", str(source)]) == 0
    assert "train.txt: " in capsys.readouterr().out
    with pytest.raises(InputError, match="too few Python files"):
        write_python_text(tmp_path / "none", tmp_path / "out", 1000)
    assert main([str(tmp_path / "none"), "--source", str(tmp_path / "out")]) == 1
    assert "too few Python files" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
