"""What the package says about its environment is what is tested, and what it is built into holds all that it needs."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import sheafstate
from tests.architecture.import_rules import DISTRIBUTIONS
from tests.architecture.imports import read_imports
from tests.architecture.source import read_tree

from .mutants import ROOT
from .promises import Mutation, contract

PYPROJECT = "../../pyproject.toml"
NO_TEXTS = Mutation(
    PYPROJECT,
    'packages = ["src/sheafstate"]',
    'packages = ["src/sheafstate"]\nexclude = ["*.txt", "*.css"]',
    "the wheel lacks the packaged text and the style of reports",
)
NO_COMMAND = Mutation(PYPROJECT, 'sheafstate = "sheafstate.cli:main"', "", "the wheel brings no command")
UNDECLARED = Mutation(PYPROJECT, '  "safetensors>=0.8",\n', "", "a package that is imported is not declared")
UNTESTED_LOWEST = Mutation(
    PYPROJECT, '"tokenizers>=0.23.1"', '"tokenizers>=0.22"', "a version is allowed that was never tested"
)
UNTESTED_PYTHON = Mutation(
    PYPROJECT, '">=3.11,<3.14"', '">=3.10,<3.14"', "a Python is allowed on which the package was not tried"
)
NO_CEILING = Mutation(
    PYPROJECT, '"transformers>=5.24,<6"', '"transformers>=5.24"', "the next major version of transformers is allowed"
)
OTHER_VERSION = Mutation(
    PYPROJECT, 'dynamic = ["version"]', 'version = "0.0.1"', "the installed package has another version than it says"
)
TESTS_INSIDE = Mutation(
    PYPROJECT, 'packages = ["src/sheafstate"]', 'packages = ["src/sheafstate", "tests"]', "the wheel installs the tests"
)
OPTIONAL = {"lm_eval": "evaluation"}
"""Import → the extra that brings it; everything else that is imported comes with the package."""


def declared() -> dict:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


def requirements(*extras: str) -> dict[str, Requirement]:
    """Name → what is asked for, of the package and of some extras; without the package itself."""
    project = declared()
    texts: Iterable[str] = project["dependencies"]
    texts = [*texts, *(text for extra in extras for text in project["optional-dependencies"][extra])]
    found = [Requirement(text) for text in texts]
    return {canonicalize_name(one.name): one for one in found if one.name != "sheafstate"}


def pins(name: str) -> dict[str, Version]:
    """Name → the only version that a file of constraints allows."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    names = [canonicalize_name(one.name) for one in found]
    assert len(names) == len(set(names))
    return {canonicalize_name(one.name): Version(str(one.specifier).removeprefix("==")) for one in found}


def lower_bounds(requirement: Requirement) -> list[Version]:
    return [Version(one.version) for one in requirement.specifier if one.operator == ">="]


@contract(25, breaks=UNTESTED_LOWEST)
def test_the_lowest_versions_are_those_that_are_tested() -> None:
    asked = requirements("evaluation", "test")
    lowest = pins("constraints-lowest.txt")
    assert {name: [lowest[name]] for name in asked} == {name: lower_bounds(one) for name, one in asked.items()}
    assert lowest.keys() == asked.keys()


@contract(25)
def test_what_the_tests_run_with_is_within_what_is_declared() -> None:
    pinned = pins("constraints.txt")
    for name, one in requirements("evaluation", "test", "dev").items():
        assert pinned[name] in one.specifier
        if name in requirements("evaluation", "test"):
            assert Version(version(name)) in one.specifier


@contract(25, breaks=NO_CEILING)
def test_transformers_has_a_ceiling() -> None:
    asked = requirements()["transformers"].specifier
    assert Version("5.99") in asked
    assert Version("6") not in asked


@contract(24, breaks=UNDECLARED)
def test_everything_that_is_imported_is_declared() -> None:
    ours = sys.stdlib_module_names | {"sheafstate"}
    used = {one.package for one in read_imports(read_tree(ROOT / "src"))} - ours
    assert used >= {"torch", "transformers"}
    for package in used:
        extras = [OPTIONAL[package]] if package in OPTIONAL else []
        assert canonicalize_name(DISTRIBUTIONS.get(package, package)) in requirements(*extras)


@contract(24, breaks=UNTESTED_PYTHON)
def test_the_pythons_that_are_declared_are_those_that_make_takes() -> None:
    project = declared()
    asked = Requirement(f"python{project['requires-python']}").specifier
    allowed = [minor for minor in range(6, 30) if Version(f"3.{minor}") in asked]
    classified = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    first, last = re.findall(r"\(3, (\d+)\)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert allowed == [int(minor) for minor in classified] == list(range(int(first), int(last) + 1))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built without a network."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=ROOT, check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """Path → content of every file in the wheel."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def described(wheel: dict[str, bytes], name: str) -> str:
    return next(content for path, content in wheel.items() if path.endswith(f".dist-info/{name}")).decode()


def metadata(wheel: dict[str, bytes]) -> Message:
    return Parser().parsestr(described(wheel, "METADATA"))


@contract(25, breaks=(NO_TEXTS, TESTS_INSIDE))
def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, bytes]) -> None:
    source = ROOT / "src"
    files = [path for path in (source / "sheafstate").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    expected = {path.relative_to(source).as_posix(): path.read_bytes() for path in files}
    assert {"sheafstate/py.typed", "sheafstate/data/texts/tinyshakespeare.txt"} < expected.keys()
    assert {path: content for path, content in wheel.items() if ".dist-info/" not in path} == expected


@contract(25, breaks=(NO_COMMAND, OTHER_VERSION))
def test_the_wheel_says_what_it_is(wheel: dict[str, bytes]) -> None:
    said = metadata(wheel)
    assert said["Name"] == "sheafstate"
    assert said["Version"] == sheafstate.__version__
    assert said["License-Expression"] == "Apache-2.0"
    assert "Apache License" in described(wheel, "licenses/LICENSE")
    assert described(wheel, "entry_points.txt").split() == [
        "[console_scripts]",
        "sheafstate",
        "=",
        "sheafstate.cli:main",
    ]
    assert callable(import_module("sheafstate.cli").main)
    assert f"version: {sheafstate.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@contract(25)
def test_the_wheel_asks_for_no_tools(wheel: dict[str, bytes]) -> None:
    asked = [Requirement(text) for text in metadata(wheel).get_all("Requires-Dist", [])]
    always = {canonicalize_name(one.name) for one in asked if one.marker is None}
    assert always == requirements().keys()


@contract(25)
def test_the_source_archive_is_enough_to_build_and_to_test(
    built: Path, wheel: dict[str, bytes], tmp_path: Path
) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for name in ("LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt", "tests/conftest.py", "docs"):
        assert (source / name).exists()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again"]
    subprocess.run(command, cwd=source, check=True, timeout=120)
    with zipfile.ZipFile(next((tmp_path / "again").glob("*.whl"))) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == wheel
