"""Tables in Markdown, and pages whose marked tables are drawn again."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from sheafstate.errors import InputError
from sheafstate.training.files import write_text

__all__ = ["markdown_table", "redraw", "replace_tables"]

_END = "<!-- end -->"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 2) -> str:
    """A table whose first columns are flush left, the others right."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def replace_tables(page: str, drawn: Mapping[str, str]) -> str:
    """A page with what stands between ``<!-- table: name -->`` and ``<!-- end -->`` replaced.

    Raises:
        InputError: a mark of the page names no table, or has no end.
    """
    pieces: list[str] = []
    rest = page
    while True:
        found = re.search(r"<!-- table: (.+?) -->", rest)
        if not found:
            return "".join(pieces) + rest
        name, end = found[1], rest.find(_END, found.end())
        if name not in drawn or end < 0:
            raise InputError(f"the table {name!r} has no records or no end mark")
        pieces.append(f"{rest[: found.end()]}\n\n{drawn[name]}\n\n")
        rest = rest[end:]


def redraw(page: Path | None, drawn: Mapping[str, str]) -> None:
    """Replace the tables of a page, or print all of them where there is none.

    Raises:
        InputError: the page cannot be read or changed, or one of its marks names no table.
    """
    if page is None:
        print("\n\n".join(f"### {name}\n\n{text}" for name, text in drawn.items()))
        return
    try:
        write_text(page, replace_tables(page.read_text(encoding="utf-8"), drawn))
    except OSError as error:
        raise InputError(f"{page} cannot be changed: {error}") from error
