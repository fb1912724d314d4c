"""Inline SVG follows the page's theme and keeps to itself."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from sheafstate.report import plots, schema
from sheafstate.report.style import ROLES
from sheafstate.report.svg import inline_svg, save_png


@pytest.fixture
def figure(run: Path) -> Figure:
    return plots.draw_loss(schema.read_history(run / "history.jsonl"), {"fill: #1b2430": 2.0})


def test_colours_become_the_themes(figure: Figure) -> None:
    svg = inline_svg(figure, "loss", "a curve")
    styles = " ".join(re.findall(r'style="([^"]*)"', svg))
    assert not any(role.light in styles for role in ROLES.values())
    assert set(re.findall(r"var\(--(\w+)\)", styles)) <= set(ROLES)
    assert "var(--sheaf)" in styles
    assert "fill: #1b2430: 2.00" in svg, "text is not style"


def test_it_is_well_formed_and_says_what_it_shows(figure: Figure) -> None:
    root = ElementTree.fromstring(inline_svg(figure, "loss", 'a "curve" <of> & \\1'))
    assert root.attrib["aria-label"] == 'a "curve" <of> & \\1'
    assert root.attrib["role"] == "img"
    assert "width" not in root.attrib


def test_it_refers_to_nothing_outside(figure: Figure) -> None:
    svg = inline_svg(figure, "loss", "a curve")
    assert "http" not in svg
    assert "<style" not in svg
    assert "<metadata" not in svg


def test_its_ids_are_its_own_and_complete(figure: Figure) -> None:
    svg = inline_svg(figure, "loss", "a curve")
    ids = re.findall(r' id="([^"]*)"', svg)
    assert ids
    assert len(set(ids)) == len(ids)
    assert all(name.startswith("loss-") for name in ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', svg)) == set(ids)


def test_the_same_figure_is_the_same_text(run: Path) -> None:
    history = schema.read_history(run / "history.jsonl")
    first, second = (inline_svg(plots.draw_loss(history), "loss", "a curve") for _ in range(2))
    assert first == second


def test_png(figure: Figure, tmp_path: Path) -> None:
    path = tmp_path / "loss.png"
    save_png(figure, path)
    assert path.read_bytes().startswith(b"\x89PNG")
