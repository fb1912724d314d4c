"""Small pieces of HTML. Whatever comes from a file passes through ``escape`` here, or in ``svg.py``."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["count", "details", "drawing", "paragraph", "section", "share", "shown", "table", "tiles"]


def section(title: str, *parts: str) -> str:
    """A section with a heading."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}</section>\n"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>\n"


def tiles(figures: Iterable[tuple[str, str]]) -> str:
    """Large figures with a label each: (label, figure)."""
    items = "".join(f"<div><dt>{escape(label)}</dt><dd>{escape(figure)}</dd></div>\n" for label, figure in figures)
    return f'<dl class="tiles">\n{items}</dl>\n' if items else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numeric: bool = True) -> str:
    """A table whose first column names the rows; the others are numbers, or text if ``numeric`` is false."""
    kind = "number" if numeric else "text"
    first, *others = map(escape, head)
    titles = f'<th scope="col">{first}</th>' + "".join(f'<th scope="col" class="{kind}">{cell}</th>' for cell in others)
    body = ""
    for name, *cells in rows:
        values = "".join(f'<td class="{kind}">{escape(cell)}</td>' for cell in cells)
        body += f'<tr><th scope="row">{escape(name)}</th>{values}</tr>\n'
    inside = f"<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}</tbody>\n"
    return f'<div class="scroll-table" tabindex="0" role="group"><table>\n{inside}</table></div>\n'


def drawing(svg: str, caption: str, wide: bool = False) -> str:
    """A figure; a wide one scrolls sideways on a small screen."""
    if wide:
        svg = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{svg}</div>'
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>\n"


def details(summary: str, content: str, is_open: bool = False) -> str:
    """Content behind a line that opens it."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>\n{content}</details>\n"


def count(value: float) -> str:
    """A whole number with separators."""
    return f"{round(value):,}"


def share(value: float | None, places: int = 2) -> str:
    """A fraction in percent."""
    return "\u2013" if value is None else f"{100 * value:.{places}f} %"


def shown(value: Any) -> str:
    """Any JSON value on one line."""
    match value:
        case bool() | None:
            return {True: "yes", False: "no", None: "\u2013"}[value]
        case int():
            return count(value)
        case float():
            return f"{value:.6g}"
        case str():
            return value
        case dict():
            return ", ".join(f"{key}: {shown(item)}" for key, item in value.items())
    return json.dumps(value, ensure_ascii=False)
