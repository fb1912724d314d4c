"""The site of a passage on the terminal: a strip of tokens with rows below, and what one token reads, by type."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sheafstate.patches import PATCHES, PatchType, Reader

__all__ = ["layer_view", "passage_heading"]

STYLES = {
    PatchType.LOCAL: "blue",
    PatchType.SYNTAX: "green",
    PatchType.SENTENCE: "bright_green",
    PatchType.INSTRUCTION: "red",
    PatchType.TOPIC: "yellow",
    PatchType.MEMORY: "magenta",
    PatchType.RETRIEVAL: "bright_magenta",
    PatchType.WORKSPACE: "cyan",
}
ADDRESS_SYMBOLS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
"""A symbol an address, so that the rows can be read without colours; with more addresses they are used again."""

FOCUS_STYLE = "bold reverse"
BARS = " ▁▂▃▄▅▆▇█"

LABEL = 12
"""Columns left of a strip, for the names of its rows."""

STRIP_LINES = 3
"""Lines of the passage that are shown: the focus's and those before it."""

AFTER_FOCUS = 12
"""Tokens shown after the focus, if there is room."""

TYPE, COMPATIBILITY, COUNT = 15, 8, 7
"""Columns of the table of heads before the relations."""

LONGEST_LABEL = 14


def passage_heading(record: dict[str, Any]) -> Text:
    """Which token is looked at, and how to read what follows."""
    focus = record["focus"]
    heading = Text(f"{record['length']:,} tokens in {len(record['layers'])} layers. Marked: token {focus}, ")
    heading.append(f" {_quoted(_shown(record)[focus])} ", FOCUS_STYLE)
    return heading


def layer_view(record: dict[str, Any], number: int, width: int) -> RenderableType:
    """One layer: the strip, then a table of the heads with what the focus reads in each.

    Args:
        record: what ``sheafstate.evaluation.site.passage_site`` gives.
        number: which layer, from 0.
        width: columns of the terminal.
    """
    layer = record["layers"][number]
    shown, focus = _shown(record), record["focus"]
    title = Text().append(f"\nLayer {number + 1} of {len(record['layers'])}", "bold")
    if layer["residual"] is not None:
        title.append(f"   disagreement of the sections at the token: {layer['residual'][focus]:.2f}", "dim")
    return Group(title, *_strip(shown, focus, layer, width), _heads_table(shown, focus, layer, width))


def _shown(record: dict[str, Any]) -> list[str]:
    from sheafstate.report.glyphs import printable

    return [printable(token) for token in record["tokens"]]


def _strip(shown: Sequence[str], focus: int, layer: dict[str, Any], width: int) -> Iterator[Text]:
    here = layer["addresses"]
    reads = _strongest(layer["edges"])
    for line in _lines(shown, focus, max(width - LABEL - 1, 10)):
        yield _row("", ((shown[at], FOCUS_STYLE if at == focus else "") for at in line), shown, line)
        yield _row("reads", (_bar(*reads.get(at, (0.0, ""))) for at in line), shown, line)
        for kind, values in layer["boundaries"].items():
            yield _row(kind, (_bar(values[at], STYLES[PatchType(kind)]) for at in line), shown, line)
        for map_number, row in enumerate(here, 1):
            cells = (_address(row[at], row[focus]) for at in line)
            yield _row(f"address {map_number}" if len(here) > 1 else "address", cells, shown, line)
        yield Text()


def _lines(shown: Sequence[str], focus: int, columns: int) -> list[range]:
    """Positions line by line: the line of the focus and as much before it as fits."""
    widths = [max(1, cell_len(label)) for label in shown]
    start = focus
    while start > 0 and sum(widths[start - 1 : focus + 1]) <= columns * STRIP_LINES:
        start -= 1
    lines: list[range] = []
    for at in range(start, min(len(shown), focus + AFTER_FOCUS + 1)):
        if not lines or sum(widths[lines[-1].start : at + 1]) > columns:
            if lines and focus in lines[-1]:
                break
            lines.append(range(at, at + 1))
        lines[-1] = range(lines[-1].start, at + 1)
    return lines[-STRIP_LINES:]


def _row(name: str, cells: Iterator[tuple[str, str]], shown: Sequence[str], line: range) -> Text:
    row = Text(no_wrap=True, overflow="crop").append(f"{name:>{LABEL}} ", "dim")
    padded = (
        (text + " " * (max(1, cell_len(shown[at])) - cell_len(text)), style)
        for (text, style), at in zip(cells, line, strict=True)
    )
    for style, run in groupby(padded, key=lambda cell: cell[1]):
        row.append("".join(text for text, _ in run), style)
    return row


def _bar(value: float, style: str) -> tuple[str, str]:
    return BARS[min(int(value * len(BARS)), len(BARS) - 1)], style


def _strongest(edges: Sequence[dict[str, Any]]) -> dict[int, tuple[float, str]]:
    """Position → the weight and the style of the strongest relation that the focus has to it.

    Relations of the dynamics are left out: they share out no weight, each carries a summary of all before it.
    """
    best: dict[int, tuple[float, str]] = {}
    for edge in edges:
        kind = PatchType(edge["type"])
        if PATCHES[kind].reader is Reader.TRANSPORT and edge["weight"] > best.get(edge["earlier"], (0.0, ""))[0]:
            best[edge["earlier"]] = edge["weight"], STYLES[kind]
    return best


def _address(address: int, of_focus: int) -> tuple[str, str]:
    return ADDRESS_SYMBOLS[address % len(ADDRESS_SYMBOLS)], "bold" if address == of_focus else "dim"


def _heads_table(shown: Sequence[str], focus: int, layer: dict[str, Any], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    table.add_column("type and head", no_wrap=True)
    glued_by_sheaf = layer["residual"] is not None
    if glued_by_sheaf:
        table.add_column("passes", justify="right")
    table.add_column("reads", justify="right")
    table.add_column("the strongest: token, how far back, weight", no_wrap=True)
    room = max(width - TYPE - COMPATIBILITY - COUNT - 8, 20)
    for kind, heads in layer["compatibility"].items():
        for head, values in enumerate(heads):
            edges = [edge for edge in layer["edges"] if (edge["type"], edge["head"]) == (kind, head)]
            name = Text(kind if len(heads) == 1 else f"{kind} {head + 1}", STYLES[PatchType(kind)])
            passes = [f"{values[focus]:.2f}"] if glued_by_sheaf else []
            table.add_row(name, *passes, str(len(edges)), _relations(shown, focus, edges, room))
    return table


def _relations(shown: Sequence[str], focus: int, edges: Sequence[dict[str, Any]], room: int) -> Text:
    """As many relations as there is room for, the strongest first."""
    text = Text()
    for edge in edges:
        back = focus - edge["earlier"]
        part = f"{_quoted(shown[edge['earlier']])} −{back}  {edge['weight']:.2f}"
        gap = "   " if text else ""
        if cell_len(text.plain + gap + part) > room:
            break
        text.append(gap)
        text.append(part)
    return text


def _quoted(label: str) -> str:
    return f"“{label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + '…'}”"
