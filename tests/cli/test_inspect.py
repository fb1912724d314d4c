"""``sheafstate inspect``: what it shows is the model's site, whatever the tokens and the terminal."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from sheafstate.cli.site_view import layer_view, passage_heading
from sheafstate.evaluation import load_checkpoint
from sheafstate.evaluation.site import passage_site
from sheafstate.report.glyphs import printable

TEXT = "To be, or not to be, that is the [bold]question[/bold]: naïve — 中文 𝛼 \x1b[31m\ta\u200bb\n" * 2


@pytest.fixture(scope="module")
def record(checkpoint: Path) -> dict[str, Any]:
    model, tokenizer = load_checkpoint(checkpoint)
    return passage_site(model, tokenizer, TEXT, 60)


def drawn(record: dict[str, Any], number: int, width: int) -> list[str]:
    console = Console(width=width, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(passage_heading(record))
        console.print(layer_view(record, number, width))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [50, 80, 200])
def test_the_view_fits(record: dict[str, Any], width: int) -> None:
    lines = drawn(record, 0, width)
    assert max(map(cell_len, lines)) <= width
    assert all(char.isprintable() for line in lines for char in line)


def test_rows_stand_below_their_tokens(record: dict[str, Any]) -> None:
    lines = drawn(record, 0, 60)
    rows = [line for line in lines if line.startswith(("       reads", "      syntax", "   address"))]
    texts = [lines[lines.index(row) - 1] for row in rows if row.strip().startswith("reads")]
    assert len(texts) > 1
    assert len({cell_len(line.rstrip()) for line in lines if "address " in line}) <= len(texts) + 1
    for text in texts:
        at = lines.index(text)
        address = next(line for line in lines[at:] if line.strip().startswith("address"))
        assert cell_len(text.rstrip()) <= cell_len(address) <= 60


def test_every_head_has_a_row_with_its_strongest_relation(record: dict[str, Any]) -> None:
    layer = record["layers"][1]
    lines = drawn(record, 1, 120)
    for kind, heads in layer["compatibility"].items():
        for head, values in enumerate(heads):
            name = f"{kind} {head + 1}" if len(heads) > 1 else kind
            row = next(line for line in reversed(lines) if line.split("  ")[0].strip() == name)
            edges = [edge for edge in layer["edges"] if (edge["type"], edge["head"]) == (kind, head)]
            assert f"{values[record['focus']]:.2f}" in row
            assert f" {len(edges)} " in row
            if edges:
                first = edges[0]
                assert f"−{record['focus'] - first['earlier']}  {first['weight']:.2f}" in row
                assert printable(record["tokens"][first["earlier"]]) in row


def test_json_is_what_the_library_gives(checkpoint: Path, printed) -> None:
    found = json.loads(printed("inspect", checkpoint, "ab\\ncd", "--token", -2, "--json"))
    assert found == passage_site(*load_checkpoint(checkpoint), "ab\ncd", 3)


def test_a_layer_and_a_word_are_chosen(checkpoint: Path, printed) -> None:
    shown = printed("inspect", checkpoint, "one two one three", "--focus", "one", "--layer", 2)
    assert "token 10" in shown
    assert "Layer 2 of 2" in shown
    assert "Layer 1 of 2" not in shown


def test_files_are_written_and_others_left(checkpoint: Path, printed, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    shown = printed("inspect", checkpoint, "to be or not", "--out", tmp_path, "--json")
    written = {path.name: path for path in tmp_path.iterdir()}
    names = {"site.json", "site-layer-1.png", "site-layer-2.png", "report.html"}
    assert written.keys() == names | {"notes.txt"}
    assert json.loads(written["site.json"].read_text()) == json.loads(shown)
    assert written["site-layer-2.png"].read_bytes().startswith(b"\x89PNG")
    assert "Layer 2" in written["report.html"].read_text()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["", "--json"], "empty"),
        (["abc", "--token", 3], "tokens 0 to 2"),
        (["abc", "--focus", "d"], "'d'"),
        (["abc", "--focus", "b", "--token", 1], "not both"),
        (["abc", "--layer", 3], "layers 1 to 2"),
    ],
)
def test_bad_input_is_one_sentence(checkpoint: Path, refused, arguments: list, named: str) -> None:
    assert named in refused("inspect", checkpoint, *arguments)


def test_a_folder_that_is_no_checkpoint(refused, tmp_path: Path) -> None:
    assert "config.json is missing" in refused("inspect", tmp_path, "abc")
