"""Rules about imports. Each takes the imports of a tree and yields one sentence for every fault."""

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from .house import LIGHT, MAY_IMPORT, MAY_USE, ONE_ADAPTER, PACKAGE, part_of
from .imports import Import


def upward(imports: list[Import]) -> Iterator[str]:
    """An import that does not go down the house: upward, sideways, or by way of the root."""
    for found in imports:
        if found.package != PACKAGE:
            continue
        importer, target = part_of(found.source.module), part_of(found.target)
        if importer not in MAY_IMPORT:
            yield f"{found.where}: {found.source.module} has no place in the house"
        elif target == "root" and found.name == "__version__":
            continue
        elif target != importer and target not in MAY_IMPORT[importer]:
            yield f"{found.where}: {importer} may not import {target} ({found.target})"


def circular(imports: list[Import]) -> Iterator[str]:
    """A module that imports itself through others."""
    graph: dict[str, set[str]] = defaultdict(set)
    for found in imports:
        if found.package == PACKAGE and found.name != "__version__":
            graph[found.source.module].add(found.target)
    for start in sorted(graph):
        if start in _reached(graph, start):
            yield f"{start} imports itself through others"


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in seen:
            seen.add(module)
            ahead.extend(graph.get(module, ()))
    return seen


def third_party(imports: list[Import]) -> Iterator[str]:
    """A third party away from its place at the rim."""
    users: dict[str, set[str]] = defaultdict(set)
    for found in _from_outside(imports):
        part = part_of(found.source.module)
        users[found.package].add(found.source.module)
        if found.package not in MAY_USE:
            yield f"{found.where}: {found.package} is used nowhere in the house"
        elif part not in MAY_USE[found.package]:
            yield f"{found.where}: {part} may not use {found.package}"
    for name in sorted(ONE_ADAPTER):
        if len(users[name]) > 1:
            yield f"{name} is known to more than one file: {', '.join(sorted(users[name]))}"


DISTRIBUTIONS = {"yaml": "pyyaml"}
"""Packages that are imported by another name than they are installed by."""


def undeclared(imports: list[Import], pyproject: Path) -> Iterator[str]:
    """A third party that the package's metadata does not ask for."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    asked = list(project["dependencies"])
    for extra, requirements in project.get("optional-dependencies", {}).items():
        asked += [] if extra == "dev" else requirements
    names = {re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("-", "_") for requirement in asked}
    for found in _from_outside(imports):
        if DISTRIBUTIONS.get(found.package, found.package) not in names:
            yield f"{found.where}: {found.package} is not among the dependencies"


def heavy_at_the_door(imports: list[Import]) -> Iterator[str]:
    """A command line that loads more than it needs to print its help."""
    for found in imports:
        if part_of(found.source.module) != "cli" or found.deferred or found.package in sys.stdlib_module_names:
            continue
        inside = found.package == PACKAGE
        light = (part_of(found.target) if inside else found.package) in LIGHT
        if not (light or (inside and found.name == "__version__")):
            yield f"{found.where}: import {found.target} inside the command that needs it"


def _from_outside(imports: list[Import]) -> Iterator[Import]:
    standard = sys.stdlib_module_names
    return (found for found in imports if found.package not in standard and found.package != PACKAGE)
