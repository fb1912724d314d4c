"""The picture of a site shows the focus's relations and nothing else's, whatever the tokens are."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch

from sheafstate.errors import InputError
from sheafstate.patches import HEAD_TYPES
from sheafstate.report import schema
from sheafstate.report.glyphs import printable
from sheafstate.report.site_plot import describe_site, draw_site
from sheafstate.report.style import type_colour
from sheafstate.report.svg import inline_svg

from .conftest import FOCUS, TOKENS


@pytest.fixture
def passage(run: Path) -> schema.Passage:
    return schema.read_passage(run / "site.json")


def arcs(figure) -> list[PathPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


def shown(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_arcs_are_the_relations_of_the_focus(passage: schema.Passage) -> None:
    drawn = arcs(draw_site(passage, 0))
    assert sorted(to_hex(arc.get_edgecolor()) for arc in drawn) == sorted(
        type_colour(name) for name in ("local", "syntax", "retrieval")
    )
    widths = {to_hex(arc.get_edgecolor()): arc.get_linewidth() for arc in drawn}
    assert widths[type_colour("local")] > widths[type_colour("retrieval")] > widths[type_colour("syntax")]


def test_arcs_end_where_they_say(passage: schema.Passage) -> None:
    ends = {to_hex(arc.get_edgecolor()): arc.get_path().vertices[[0, -1], 0] for arc in arcs(draw_site(passage, 0))}
    assert ends[type_colour("local")] == pytest.approx([FOCUS + 0.5, FOCUS - 0.5])
    assert ends[type_colour("retrieval")] == pytest.approx([FOCUS + 0.5, 2.5])


def test_tokens_rows_and_counts_are_shown(passage: schema.Passage) -> None:
    texts = shown(draw_site(passage, 0))
    assert texts[: len(TOKENS)] == [printable(token) for token in TOKENS]
    assert {"local 1", "syntax 1", "retrieval 1", "syntax", "topic", "addresses 1"} <= set(texts)


def test_a_narrow_strip_keeps_the_focus_and_counts_what_is_out(passage: schema.Passage) -> None:
    figure = draw_site(passage, 0, columns=8)
    assert "1 further back" in shown(figure)
    retrieval = [arc for arc in arcs(figure) if to_hex(arc.get_edgecolor()) == type_colour("retrieval")]
    assert retrieval[0].get_path().vertices[-1, 0] < 0
    assert printable(TOKENS[FOCUS]) in shown(figure)


@pytest.mark.parametrize("columns", [1, 3, 10, 1000])
@pytest.mark.parametrize("focus", [0, 1, len(TOKENS) - 1])
def test_any_focus_and_width(passage: schema.Passage, columns: int, focus: int) -> None:
    figure = draw_site(replace(passage, focus=focus), 0, columns=columns)
    assert printable(TOKENS[focus]) in shown(figure)
    assert arcs(figure) == []


def test_a_layer_without_anything_is_drawn(passage: schema.Passage) -> None:
    assert arcs(draw_site(passage, 1)) == []


def test_missing_layers_are_refused(passage: schema.Passage) -> None:
    with pytest.raises(InputError, match="layers 0 to 1, not 2"):
        draw_site(passage, 2)


def test_any_text_can_be_a_token(passage: schema.Passage) -> None:
    odd = [
        "\u6f22\u5b57",
        "\U0001f600",
        "$\\frac$",
        "",
        "\ud800",
        "\uffff",
        "\x1b",
        " word",
        "\u202e",
        "<b>",
        "&",
        "]]>",
    ]
    tokens = tuple((odd * 3)[: len(TOKENS)])
    figure = draw_site(replace(passage, tokens=tokens), 0)
    svg = inline_svg(figure, "odd", describe_site(replace(passage, tokens=tokens), 0))
    assert "\u6f22\u5b57" in svg
    assert "<b>" not in svg


def test_the_description_says_what_the_picture_shows(passage: schema.Passage) -> None:
    said = describe_site(passage, 0)
    assert f"Token {FOCUS}, \u201c{TOKENS[FOCUS]}\u201d, reads by type: 1 local, 1 syntax, 1 retrieval" in said
    assert "boundaries of syntax, topic; 1 address maps" in said
    assert "reads by type: none" in describe_site(passage, 1)


@pytest.mark.parametrize(("text", "symbol"), [("\n", "\u21b5"), ("\t", "\u21e5"), ("", "\u2205"), ("\x00", "\ufffd")])
def test_printable(text: str, symbol: str) -> None:
    assert printable(text) == symbol


@pytest.mark.parametrize("columns", [8, 20, 96])
def test_the_counts_stay_inside_the_picture(passage: schema.Passage, columns: int) -> None:
    one = passage.layers[0].edges[0]
    every = tuple(replace(one, type=kind.value) for kind in HEAD_TYPES)
    figure = draw_site(replace(passage, layers=(replace(passage.layers[0], edges=every),)), 0, columns=columns)
    counts = [text for text in figure.axes[0].texts if text.get_text() in {f"{kind.value} 1" for kind in HEAD_TYPES}]
    assert len(counts) == len(HEAD_TYPES)
    figure.canvas.draw()
    frame = figure.bbox
    boxes = [text.get_window_extent() for text in counts]
    assert all(box.x1 <= frame.x1 + 1 and box.y1 <= frame.y1 + 1 for box in boxes if columns > 8)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
