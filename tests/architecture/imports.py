"""Who imports whom, read with ``ast``: nothing is run, and an import hidden in a function counts like any other."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .source import Source

DYNAMIC_IMPORTS = {"import_module", "__import__"}


@dataclass(frozen=True)
class Import:
    """One import.

    Attributes:
        source: the file that imports.
        line: where.
        target: the module imported, dotted; for ``from a import b`` it is ``a.b`` where that is a module of the tree.
        name: ``b`` of ``from a import b`` where that is no module of the tree, else ``None``.
        deferred: whether importing the file leaves it undone: it stands in a function or under ``TYPE_CHECKING``.
    """

    source: Source
    line: int
    target: str
    name: str | None
    deferred: bool

    @property
    def package(self) -> str:
        return self.target.partition(".")[0]

    @property
    def where(self) -> str:
        return self.source.at(self.line)


def read_imports(sources: list[Source]) -> list[Import]:
    """All imports of a tree."""
    modules = {source.module for source in sources}
    return [
        Import(source, node.lineno, target, name, deferred)
        for source in sources
        for node, deferred in _nodes(source.tree, deferred=False)
        for target, name in _targets(node, source, modules)
    ]


def _nodes(node: ast.AST, deferred: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is left undone when the file is imported."""
    yield node, deferred
    is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    is_checking = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, deferred or is_function or is_checking)


def _targets(node: ast.AST, source: Source, modules: set[str]) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = _base(node, source)
        for alias in node.names:
            submodule = f"{base}.{alias.name}"
            yield (submodule, None) if submodule in modules else (base, alias.name)
    elif isinstance(node, ast.Call) and _called_name(node) in DYNAMIC_IMPORTS and node.args:
        match node.args[0]:
            case ast.Constant(value=str(target)):
                yield target, None


def _base(node: ast.ImportFrom, source: Source) -> str:
    """The module after ``from``, with leading dots resolved."""
    if node.level == 0:
        return node.module or ""
    parts = source.module.split(".")
    parts = parts[: len(parts) - node.level + source.is_package]
    return ".".join([*parts, node.module] if node.module else parts)


def _called_name(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))
