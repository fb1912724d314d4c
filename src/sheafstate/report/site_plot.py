"""The picture of a passage's site: tokens along a line, arcs to what one token reads, boundaries and addresses below.

One unit of the drawing is the width of a character, in both directions.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from sheafstate.errors import InputError
from sheafstate.patches import PatchType
from sheafstate.report.glyphs import printable
from sheafstate.report.schema import Edge, Layer, Passage
from sheafstate.report.style import ROLES, address_colour, new_figure, settings, type_colour

__all__ = ["describe_site", "draw_site"]

Value = TypeVar("Value", int, float)

INCHES = 0.085
"""Width of a unit."""

LABELS = 12.0
"""Units left of the passage, for the names of the rows."""

AFTER_FOCUS = 12
"""Tokens shown after the focus."""

ROW = 2.0
"""Height of a row of boundaries or addresses."""


@dataclass(frozen=True)
class _Strip:
    """The shown part of a passage: its first position, and where each token begins and how wide it is."""

    start: int
    left: tuple[float, ...]
    width: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.left[-1] + self.width[-1]

    @property
    def positions(self) -> range:
        return range(self.start, self.start + len(self.left))

    def centre(self, position: int) -> float:
        index = position - self.start
        return self.left[index] + self.width[index] / 2


def draw_site(passage: Passage, layer: int, columns: int = 96) -> Figure:
    """Draw one layer's site around the focus.

    Above the tokens an arc for every relation of the focus, coloured by its type and as strong as its weight; arcs that
    end at the left margin go to tokens further back than shown. Below, one row a type of interval with the
    probability of a boundary, and one row an address map; a dot marks the focus's address.

    Args:
        passage: the passage.
        layer: which of its layers.
        columns: characters to show at the most.

    Raises:
        InputError: if there is no such layer.
    """
    if not 0 <= layer < len(passage.layers):
        raise InputError(f"the passage has layers 0 to {len(passage.layers) - 1}, not {layer}")
    site = passage.layers[layer]
    strip = _strip(passage, columns)
    edges = _edges_of(passage, layer)
    focus, ends = strip.centre(passage.focus), _arc_ends(strip, edges)
    legend = _legend(edges, strip.total)
    top = max([4.0, *(_height(focus - end) for _, end in ends)]) + 1.5 + ROW * len(legend)
    bottom = -1.4 - ROW * (len(site.boundaries) + len(site.addresses))
    width = strip.total + LABELS + 1
    with settings():
        figure = new_figure(width * INCHES, (top - bottom) * INCHES)
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-LABELS, strip.total + 1), ylim=(bottom, top))
        axes.set_axis_off()
        _draw_tokens(axes, passage, strip)
        _draw_arcs(axes, focus, ends)
        _draw_legend(axes, legend, top)
        _draw_rows(axes, site, strip, passage.focus)
    return figure


def describe_site(passage: Passage, layer: int) -> str:
    """The picture in one sentence, for those who cannot see it."""
    site = passage.layers[layer]
    counts = ", ".join(f"{count} {name}" for name, count in _counts(_edges_of(passage, layer)).items())
    focus = printable(passage.tokens[passage.focus])
    return (
        f"Site of {len(passage.tokens)} tokens in layer {layer + 1}. "
        f"Token {passage.focus}, \u201c{focus}\u201d, reads by type: {counts or 'none'}. "
        f"Rows below: boundaries of {', '.join(site.boundaries) or 'no type'}; "
        f"{len(site.addresses)} address maps."
    )


def _edges_of(passage: Passage, layer: int) -> list[Edge]:
    return [edge for edge in passage.layers[layer].edges if edge.later == passage.focus]


def _counts(edges: list[Edge]) -> dict[str, int]:
    """Relations by type, in the order of the table of patch types."""
    counts = Counter(edge.type for edge in edges)
    known = [str(name) for name in PatchType if name in counts]
    return {name: counts[name] for name in [*known, *sorted(set(counts) - set(known))]}


def _strip(passage: Passage, columns: int) -> _Strip:
    """As much before the focus as fits, after a little of what follows it."""
    widths = [_columns(printable(token)) + (0.6 if len(token) > 1 else 0.0) for token in passage.tokens]
    stop = min(len(widths), passage.focus + AFTER_FOCUS + 1)
    start = passage.focus
    while start > 0 and sum(widths[start - 1 : stop]) <= columns:
        start -= 1
    while stop > passage.focus + 1 and sum(widths[start:stop]) > columns:
        stop -= 1
    shown = widths[start:stop]
    return _Strip(start, tuple(sum(shown[:i]) for i in range(len(shown))), tuple(shown))


def _columns(text: str) -> float:
    """Columns of a terminal that the text would take, one at the least."""
    return max(1.0, sum(2.0 if unicodedata.east_asian_width(c) in "WF" else 1.0 for c in text))


def _arc_ends(strip: _Strip, edges: list[Edge]) -> list[tuple[Edge, float]]:
    """Where the arc of every relation ends, the faintest first; those further back end in the margin, by type."""
    beyond = list(_counts([edge for edge in edges if edge.earlier < strip.start]))
    return [
        (edge, strip.centre(edge.earlier) if edge.earlier >= strip.start else -0.8 - 0.9 * beyond.index(edge.type))
        for edge in sorted(edges, key=lambda e: e.weight or 0.0)
    ]


def _height(distance: float) -> float:
    return 1.3 * distance**0.55 + 0.5


def _draw_tokens(axes: Axes, passage: Passage, strip: _Strip) -> None:
    for position in strip.positions:
        index = position - strip.start
        is_focus = position == passage.focus
        if is_focus:
            box = Rectangle((strip.left[index], -0.9), strip.width[index], 1.8, color=ROLES["mark"].light, linewidth=0)
            axes.add_patch(box)
        weight = "bold" if is_focus else "normal"
        text = printable(passage.tokens[position])
        style: dict[str, Any] = {"family": "monospace", "fontsize": 9, "ha": "center", "va": "center_baseline"}
        axes.text(strip.centre(position), 0, text, fontweight=weight, parse_math=False, **style)


def _draw_arcs(axes: Axes, focus: float, ends: list[tuple[Edge, float]]) -> None:
    for edge, end in ends:
        top = _height(focus - end) * 4 / 3
        curve = Path([(focus, 1.1), (focus, top), (end, top), (end, 1.1)], [Path.MOVETO, *[Path.CURVE4] * 3])
        weight = 0.0 if edge.weight is None else min(max(edge.weight, 0.0), 1.0)
        style: dict[str, Any] = {"linewidth": 0.7 + 2.3 * weight, "alpha": 0.4 + 0.6 * weight, "capstyle": "round"}
        axes.add_patch(PathPatch(curve, fill=False, edgecolor=type_colour(edge.type), **style))
    beyond = sum(end < 0 for _, end in ends)
    if beyond:
        _label(axes, f"{beyond} further back", -ROW / 2 + 0.2, ROLES["soft"].light)


def _legend(edges: list[Edge], width: float) -> list[list[tuple[float, str, str]]]:
    """How many relations of each type the focus has, as lines of (left, type, text) no wider than the strip."""
    lines: list[list[tuple[float, str, str]]] = [[]]
    x = 0.0
    for name, count in _counts(edges).items():
        text = f"{name} {count}"
        if lines[-1] and x + len(text) > width:
            lines.append([])
            x = 0.0
        lines[-1].append((x, name, text))
        x += len(text) + 2.5
    return lines


def _draw_legend(axes: Axes, lines: list[list[tuple[float, str, str]]], top: float) -> None:
    for number, line in enumerate(lines):
        for x, name, text in line:
            place: dict[str, Any] = {"ha": "left", "va": "center"}
            axes.text(x, top - 1.2 - ROW * number, text, color=type_colour(name), fontweight="bold", **place)


def _draw_rows(axes: Axes, site: Layer, strip: _Strip, focus: int) -> None:
    baseline = -1.4 - ROW
    for name, values in site.boundaries.items():
        _label(axes, name, baseline, type_colour(name))
        axes.plot([0, strip.total], [baseline] * 2, color=ROLES["grid"].light, linewidth=0.6)
        for x, width, value in _cells(strip, values):
            bar = Rectangle((x + 0.1, baseline), width - 0.2, (ROW - 0.4) * value, color=type_colour(name), linewidth=0)
            axes.add_patch(bar)
        baseline -= ROW
    for number, row in enumerate(site.addresses):
        _label(axes, f"addresses {number + 1}", baseline, ROLES["soft"].light)
        for x, width, address in _cells(strip, row):
            box = Rectangle((x + 0.04, baseline), width - 0.08, ROW - 0.5, color=address_colour(address), linewidth=0)
            axes.add_patch(box)
            if address == row[focus]:
                axes.plot([x + width / 2], [baseline + (ROW - 0.5) / 2], "o", color=ROLES["ink"].light, markersize=2.2)
        baseline -= ROW


def _label(axes: Axes, text: str, baseline: float, colour: str) -> None:
    axes.text(-1, baseline + ROW / 2 - 0.2, text, ha="right", va="center", fontsize=8, color=colour)


def _cells(strip: _Strip, values: tuple[Value, ...]) -> Iterator[tuple[float, float, Value]]:
    return zip(strip.left, strip.width, values[strip.start : strip.start + len(strip.left)], strict=True)
