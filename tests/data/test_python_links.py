"""Names in Python go back to what bound them last, by Python's own scopes."""

import symtable
import sysconfig
from pathlib import Path

import pytest

from sheafstate.data.python_links import python_graph
from sheafstate.errors import InputError

LIBRARY = Path(sysconfig.get_path("stdlib"))


def links(source: str) -> set[tuple[str, int, int]]:
    """(name, line of the use, line of the definition)."""
    graph = python_graph(source)
    begins = graph["off"][::2]
    words = [source[begin:end] for begin, end in zip(begins, graph["off"][1::2], strict=True)]
    lines = [source[:begin].count("\n") + 1 for begin in begins]
    assert all(words[use] == words[made] for use, made in graph["def"])
    return {(words[use], lines[use], lines[made]) for use, made in graph["def"]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\nx = 2\nprint(x)\n", {("x", 3, 2)}),
        ("print(x)\nx = 1\n", set()),
        ("x = 1\nx += 2\nx\n", {("x", 2, 1), ("x", 3, 2)}),
        ("def f(a, *b, c=1, **d):\n    return a, b, c, d\nf\n", {(n, 2, 1) for n in "abcd"} | {("f", 3, 1)}),
        ("x = 1\ndef f(y=x):\n    x = y\n    return x\n", {("x", 2, 1), ("y", 3, 2), ("x", 4, 3)}),
        ("x = 1\nclass A:\n    x = 2\n    y = x\n    def f(self):\n        return x\n", {("x", 4, 3), ("x", 6, 1)}),
        ("x = 1\ndef f():\n    global x\n    x = 2\nx\n", {("x", 5, 4)}),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    return x\n", {("x", 6, 5)}),
        ("x = [1]\ny = [x for x in x if x]\nx\n", {("x", 2, 1), ("x", 2, 2), ("x", 3, 1)}),
        ("z = {k: v for k, v in\n w if v}\n", {("v", 2, 1)}),
        ("f = lambda a: a\n", {("a", 1, 1)}),
        ("import a.b, c as d\na, d, c\n", {("a", 2, 1), ("d", 2, 1)}),
        ("from m import (n,\n  o as p)\nn, p, o\n", {("n", 3, 1), ("p", 3, 2)}),
        ("try:\n    1\nexcept OSError as e:\n    e\n", {("e", 4, 3)}),
        ("with f() as g:\n    g\nfor i in g:\n    i\n", {("g", 2, 1), ("g", 3, 1), ("i", 4, 3)}),
        ("match 1:\n    case [a, *b] | {'k': a, **b}:\n        a\n", {("a", 3, 2)}),
        ("[y := 1 for _ in '']\ny\n", {("y", 2, 1)}),
        ("ä = 'ö'; b = ä\n", {("ä", 1, 1)}),
        ("@d\ndef d(): pass\nd\n", {("d", 3, 2)}),
        ("x = 1\nx.x = x.y\n", {("x", 2, 1)}),
        ("async def f(x: int) -> int:\n    return x\n", {("x", 2, 1)}),
    ],
)
def test_a_use_goes_back_to_what_its_scope_bound_last(source: str, expected: set[tuple[str, int, int]]) -> None:
    assert links(source) == expected


@pytest.mark.parametrize("source", ["def f(:\n", "x = '\n", "a\0b", "  x = 1\n y = 2\n"])
def test_what_is_no_python_is_refused(source: str) -> None:
    with pytest.raises(InputError, match="no Python source"):
        python_graph(source)


@pytest.mark.parametrize("name", ["bisect.py", "textwrap.py", "heapq.py", "json/decoder.py", "queue.py", "fnmatch.py"])
def test_in_the_standard_library_every_linked_name_is_bound_there(name: str) -> None:
    """Against the interpreter's own symbol tables: what is linked is bound in some scope of the file."""
    source = (LIBRARY / name).read_text(encoding="utf-8")
    bound, tables = set(), [symtable.symtable(source, name, "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        bound |= {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_parameter() or s.is_imported()}
    found = links(source)
    assert len(found) > 20
    assert {use for use, _, _ in found} <= bound
