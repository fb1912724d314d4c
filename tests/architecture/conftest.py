"""A small house to break rules in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .source import Source, read_tree

Build = Callable[[dict[str, str]], list[Source]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write files (path → text) into a fresh tree and read it, with the packages that their folders make."""

    def write(files: dict[str, str]) -> list[Source]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            for folder in path.relative_to(tmp_path).parents[:-1]:
                (tmp_path / folder / "__init__.py").touch()
        return read_tree(tmp_path)

    return write
