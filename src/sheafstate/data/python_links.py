"""Which definition every name in a Python source goes back to: links that are exact and cost nothing.

A use is a name that is read. It goes back to the last place before it, in the text, where its scope binds that name:
an assignment, a definition, an argument, an import, a loop, a handler. Scopes are Python's own (module, class,
function, comprehension); names of the language itself and attributes have no definition in the text. Source: the
Python Language Reference, section 4.2, "Naming and binding".
"""

import ast
import bisect
import io
import token
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sheafstate.errors import InputError

__all__ = ["python_graph"]

_NO_WORDS = {token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER, tokenize.NL, tokenize.ENCODING}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def python_graph(source: str) -> dict[str, Any]:
    """A source as a line of a file of annotated texts: ``text``, ``off`` and ``def`` (pairs use, definition).

    Words are the tokens of the language, comments among them. See :func:`~sheafstate.data.graphs.read_graphs`.

    Raises:
        InputError: it is no Python that this interpreter reads.
    """
    try:
        words = _Words(source)
        reader = _Reader(words)
        reader.visit(ast.parse(source))
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError) as error:
        raise InputError(f"this is no Python source: {error}") from error
    return {"text": source, "off": words.places, "def": [[use, made] for use, made in reader.links()]}


class _Words:
    """The tokens of a source, and the one that stands at a place of the tree."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines(keepends=True)
        starts = [0]
        for line in self.lines:
            starts.append(starts[-1] + len(line))
        self.starts, self.begins, self.ends, self.texts = starts, [], [], []
        for found in tokenize.generate_tokens(io.StringIO(source, newline="").readline):
            begin, end = (starts[row - 1] + column for row, column in (found.start, found.end))
            if found.type not in _NO_WORDS and end > begin and found.string.strip():
                self.begins.append(begin)
                self.ends.append(end)
                self.texts.append(found.string)

    @property
    def places(self) -> list[int]:
        """Begin and end of every word."""
        return [at for word in zip(self.begins, self.ends, strict=True) for at in word]

    def at(self, line: int, column: int) -> int:
        """The word at a place of the tree, whose columns count bytes."""
        characters = len(self.lines[line - 1].encode()[:column].decode())
        return bisect.bisect_right(self.begins, self.starts[line - 1] + characters) - 1

    def next(self, name: str, begin: int) -> int | None:
        """The first word from ``begin`` on that is this name."""
        return next((number for number in range(begin, len(self.texts)) if self.texts[number] == name), None)


@dataclass
class _Scope:
    kind: str
    parent: "_Scope | None"
    bound: dict[str, list[int]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def module(self) -> "_Scope":
        return self if self.parent is None else self.parent.module()

    def bind(self, name: str, word: int | None) -> None:
        """Say where a name is bound; ``global`` and ``nonlocal`` names are bound further out."""
        if word is None:
            return
        where = self.elsewhere.get(name)
        scope = self.module() if where == "global" else self.outer(name) if where else self
        if scope is not None:
            scope.bound.setdefault(name, []).append(word)

    def outer(self, name: str) -> "_Scope | None":
        """The nearest function around this scope that binds the name, else the module if that does."""
        scope = self.parent
        while scope is not None and (scope.kind == "class" or name not in scope.bound):
            scope = scope.parent
        return scope

    def of(self, name: str) -> "_Scope | None":
        """The scope whose name a use here means."""
        where = self.elsewhere.get(name)
        if where == "global":
            return self.module()
        return self if where is None and name in self.bound else self.outer(name)


class _Reader(ast.NodeVisitor):
    """Walks a tree, keeping what every scope binds and what is used where."""

    def __init__(self, words: _Words) -> None:
        self.words = words
        self.scope = _Scope("module", None)
        self.uses: list[tuple[str, int, _Scope]] = []

    def links(self) -> Iterator[tuple[int, int]]:
        """(use, definition) of every name that was bound before it is used."""
        for name, word, scope in self.uses:
            home = scope.of(name)
            before = [made for made in home.bound.get(name, ()) if made < word] if home is not None else []
            if before:
                yield word, max(before)

    def _within(self, kind: str, *parts: ast.AST | None) -> None:
        self.scope = _Scope(kind, self.scope)
        for part in parts:
            if part is not None:
                self.visit(part)
        assert self.scope.parent is not None
        self.scope = self.scope.parent

    def _word(self, node: Any) -> int:
        return self.words.at(node.lineno, node.col_offset)

    def _use(self, node: ast.Name) -> None:
        """Up to Python 3.11 what an f-string names is no word of its own; then it is left out."""
        word = self._word(node)
        if self.words.texts[word] == node.id:
            self.uses.append((node.id, word, self.scope))

    def visit_Name(self, node: ast.Name) -> None:
        """A use, or a binding."""
        if isinstance(node.ctx, ast.Load):
            self._use(node)
        else:
            self.scope.bind(node.id, self._word(node))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """``:=`` binds in the scope around comprehensions."""
        self.visit(node.value)
        scope = self.scope
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        scope.bind(node.target.id, self._word(node.target))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """``+=`` reads before it binds."""
        if isinstance(node.target, ast.Name):
            self._use(node.target)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        """Names of the module."""
        self.scope.elsewhere |= dict.fromkeys(node.names, "global")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        """Names of a function around."""
        self.scope.elsewhere |= dict.fromkeys(node.names, "nonlocal")

    def visit_alias(self, node: ast.alias) -> None:
        """An import binds its last name, or the first part of a dotted one."""
        name = node.asname or node.name.partition(".")[0]
        begin = self._word(node)
        if node.asname:
            begin = (self.words.next("as", begin) or begin) + 1
        self.scope.bind(name, self.words.next(name, begin))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        """``except … as name``."""
        if node.type is not None:
            self.visit(node.type)
            if node.name:
                assert node.type.end_lineno is not None
                assert node.type.end_col_offset is not None
                after = self.words.at(node.type.end_lineno, node.type.end_col_offset - 1)
                self.scope.bind(node.name, self.words.next(node.name, after + 1))
        for part in node.body:
            self.visit(part)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        """A pattern that gives what it matches a name."""
        self.generic_visit(node)
        self._bind_last(node.name, node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        """The rest of a sequence."""
        self._bind_last(node.name, node)

    def _bind_last(self, name: str | None, node: Any) -> None:
        if name:
            self.scope.bind(name, self.words.at(node.end_lineno, node.end_col_offset - 1))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class binds its name here; its body is a scope that functions in it do not see."""
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.scope.bind(node.name, self.words.next(node.name, self._word(node)))
        self._within("class", *getattr(node, "type_params", ()), *node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function binds its name here; decorators, defaults and annotations are read here."""
        for part in node.decorator_list:
            self.visit(part)
        self.scope.bind(node.name, self.words.next(node.name, self._word(node)))
        self._outside(node.args)
        if node.returns is not None:
            self.visit(node.returns)
        self._within("function", *getattr(node, "type_params", ()), *_arguments(node.args), *node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A function without a name."""
        self._outside(node.args)
        self._within("function", *_arguments(node.args), node.body)

    def _outside(self, arguments: ast.arguments) -> None:
        annotations = [argument.annotation for argument in _arguments(arguments)]
        for part in (*annotations, *arguments.defaults, *arguments.kw_defaults):
            if part is not None:
                self.visit(part)

    def visit_arg(self, node: ast.arg) -> None:
        """An argument is bound in its function."""
        self.scope.bind(node.arg, self._word(node))

    def visit_ListComp(self, node: Any) -> None:
        """A comprehension is a scope of its own, but for what its first loop runs over."""
        first, *others = node.generators
        self.visit(first.iter)
        later = [part for loop in others for part in (loop.iter, loop.target, *loop.ifs)]
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._within("comprehension", first.target, *first.ifs, *later, *results)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    """All arguments, in the order of the text."""
    named = [*arguments.posonlyargs, *arguments.args]
    starred = [] if arguments.vararg is None else [arguments.vararg]
    return [*named, *starred, *arguments.kwonlyargs, *([] if arguments.kwarg is None else [arguments.kwarg])]
