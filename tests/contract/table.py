"""Writes the table of promises: ``python -m tests.contract.table``."""

from pathlib import Path

from .collection import Holder, holders
from .promises import GROUPS, PROMISES

DOCUMENT = Path(__file__).parents[2] / "docs" / "contract.md"
BEGIN = "<!-- The rest of this file is written by `python -m tests.contract.table` from the markers of the tests. -->"


def table() -> str:
    """The generated part of the document."""
    everyone = holders()
    parts = [BEGIN]
    for title, numbers in GROUPS.items():
        rows = [_row(number, [holder for holder in everyone if number in holder.numbers]) for number in numbers]
        head = "| no. | promise | held by | seen to fail when |\n|---|---|---|---|"
        parts.append("\n".join((f"## {title}\n", head, *rows)))
    return "\n\n".join(parts) + "\n"


def _row(number: int, mine: list[Holder]) -> str:
    tests = [f"[{h.name}](../{h.path}){' (slow)' if h.slow else ''}" for h in mine]
    faults = dict.fromkeys(mutation.fault for h in mine for mutation in h.breaks)
    return f"| {number} | {PROMISES[number]} | {'<br>'.join(tests)} | {'<br>'.join(faults)} |"


def write() -> None:
    """Put the table in its place; what stands before it is left."""
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(text.partition(BEGIN)[0] + table(), encoding="utf-8")


if __name__ == "__main__":
    write()
