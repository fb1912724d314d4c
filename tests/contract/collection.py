"""The marked tests, read from their modules: whoever holds a promise is found without running anything."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .promises import Mutation

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Holder:
    """A test that holds promises.

    Attributes:
        path: its file, from the root of the project.
        name: its name; tests that differ in their parameters have one.
        numbers: the promises.
        breaks: mutations that make it fail.
        slow: whether it is left out of the default run.
    """

    path: str
    name: str
    numbers: tuple[int, ...]
    breaks: tuple[Mutation, ...]
    slow: bool


def holders() -> list[Holder]:
    """All tests marked with a promise, by file and name."""
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if "contract(" in path.read_text(encoding="utf-8")]
    return [holder for path in files for holder in _of_file(path)]


def _of_file(path: Path) -> Iterator[Holder]:
    module = importlib.import_module(".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts)))
    everywhere = getattr(module, "pytestmark", [])
    for name, test in vars(module).items():
        marks = [*getattr(test, "pytestmark", []), *(everywhere if isinstance(everywhere, list) else [everywhere])]
        mine = [mark for mark in marks if mark.name == "contract"]
        if not name.startswith("test_") or not mine:
            continue
        yield Holder(
            path=str(path.relative_to(TESTS.parent)),
            name=name,
            numbers=tuple(number for mark in mine for number in mark.args),
            breaks=tuple(mutation for mark in mine for mutation in mark.kwargs.get("breaks", ())),
            slow=any(mark.name in ("slow", "gpu", "browser") for mark in marks),
        )
