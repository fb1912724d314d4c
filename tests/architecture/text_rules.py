"""Rules about single files. Each takes a source and yields one sentence for every fault."""

import ast
import re
from collections.abc import Iterator

from .source import Source

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
GRAB_BAGS = {"utils", "util", "helpers", "helper", "common", "misc"}
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec"}

_ANCHORLESS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\s*[(:]?\s*#\d+)")
_BANNER = re.compile(r"^#+\s*[-=*#~_+\u2500-\u257f]{3,}|[-=*#~_+\u2500-\u257f]{4,}\s*$|^#{3,}")


def too_long(source: Source) -> Iterator[str]:
    """A file above the ceiling."""
    lines = source.text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{source.at(lines)}: {lines} lines, {MAX_FILE_LINES} at the most"


def off_the_screen(source: Source) -> Iterator[str]:
    """A function whose code, its docstring apart, does not fit on a screen."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1:] or node.body if ast.get_docstring(node) else node.body
            lines = first[-1].end_lineno - first[0].lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{source.at(node.lineno)}: {node.name} has {lines} lines, {MAX_FUNCTION_LINES} at the most"


def grab_bag(source: Source) -> Iterator[str]:
    """A module named after nothing."""
    for part in source.module.split("."):
        if part in GRAB_BAGS:
            yield f"{source.at(1)}: {part} says nothing about what is inside"


def twinless(source: Source) -> Iterator[str]:
    """A file of kernels where no function ``f`` stands beside its plain ``f_reference``, or a twin stands alone."""
    names = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    twins = {name for name in names if name.endswith("_reference")}
    if not twins and not source.is_package:
        yield f"{source.at(1)}: no reference twin"
    for twin in sorted(twins):
        if twin.removesuffix("_reference") not in names:
            yield f"{source.at(1)}: {twin} is the twin of nothing"


def unsafe(source: Source) -> Iterator[str]:
    """Code that lets a file run code: pickles, ``eval``, ``exec``, remote code, loading without ``weights_only``."""
    for node in ast.walk(source.tree):
        reason = _unsafe_reason(node)
        if reason:
            yield f"{source.at(node.lineno)}: {reason}"


def _unsafe_reason(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names=names):
            return next((f"import of {a.name}" for a in names if a.name.partition(".")[0] in UNSAFE_MODULES), None)
        case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in UNSAFE_MODULES:
            return f"import of {module}"
        case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
            return f"call of {name}"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load"), keywords=keywords):
            return None if _passes_true(keywords, "weights_only") else "torch.load without weights_only=True"
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
            return "allow_pickle"
        case ast.keyword(arg="trust_remote_code") | ast.Name(id="trust_remote_code"):
            return "trust_remote_code"
        case ast.Constant(value="trust_remote_code"):
            return "trust_remote_code"
    return None


def _passes_true(keywords: list[ast.keyword], name: str) -> bool:
    return any(k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is True for k in keywords)


def anchorless(source: Source) -> Iterator[str]:
    """A note to oneself that names no issue, as ``TODO(#12)`` does."""
    for line, text in (*source.comments(), *source.docstrings()):
        if _ANCHORLESS.search(text):
            yield f"{source.at(line)}: a note that names no issue"


def banner(source: Source) -> Iterator[str]:
    """A comment that is drawn rather than said."""
    for line, text in source.comments():
        if _BANNER.search(text):
            yield f"{source.at(line)}: banner comment"
