"""Source files as the rules see them: a path, a module name, a text, a syntax tree."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A Python file below ``root``, which is the folder that holds the package."""

    root: Path
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def module(self) -> str:
        parts = self.path.relative_to(self.root).with_suffix("").parts
        return ".".join(parts[:-1] if self.is_package else parts)

    def at(self, line: int) -> str:
        """Where a fault is, as editors and terminals link it."""
        return f"{self.path.relative_to(self.root)}:{line}"

    def comments(self) -> Iterator[tuple[int, str]]:
        """Line and text of every comment; a ``#`` inside a string is none."""
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string

    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Line and text of every docstring."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node, clean=False)
                if text is not None:
                    yield node.body[0].lineno, text


def read_tree(root: Path) -> list[Source]:
    """Every Python file below ``root``, in a fixed order; of folders whose name starts with a dot, none."""
    paths = (path for path in root.rglob("*.py") if not any(part[0] == "." for part in path.relative_to(root).parts))
    return [Source(root, path) for path in sorted(paths)]
