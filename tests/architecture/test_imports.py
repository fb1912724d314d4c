"""Imports of the package go one way, and each rule that says so is seen to fail."""

from pathlib import Path

import pytest

from . import import_rules
from .conftest import Build
from .house import LETTERS, MAY_IMPORT, MAY_USE
from .imports import Import, read_imports
from .source import read_tree

ROOT = Path(__file__).parents[2]
HOUSE_RULES = [
    import_rules.upward,
    import_rules.circular,
    import_rules.third_party,
    import_rules.heavy_at_the_door,
]


@pytest.fixture(scope="module")
def house() -> list[Import]:
    sources = read_tree(ROOT / "src")
    assert len(sources) > 10
    return read_imports(sources)


@pytest.mark.parametrize("rule", HOUSE_RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule, house: list[Import]) -> None:
    assert list(rule(house)) == []


def test_the_house_declares_what_it_uses(house: list[Import]) -> None:
    assert list(import_rules.undeclared(house, ROOT / "pyproject.toml")) == []


def test_the_plan_itself_has_no_way_back() -> None:
    order = list(MAY_IMPORT)
    for part, below in MAY_IMPORT.items():
        assert part not in below
        assert all(part not in MAY_IMPORT[other] for other in below), part
        assert below <= set(order)
    assert not any(MAY_IMPORT[letter] & LETTERS for letter in LETTERS)
    assert all(parts <= set(order) for parts in MAY_USE.values())


def faults(build: Build, rule, files: dict[str, str]) -> list[str]:
    return list(rule(read_imports(build(files))))


UPWARD = {
    "up": ("sheafstate/ops/scan.py", "from sheafstate.config import SheafStateConfig"),
    "up, plain import": ("sheafstate/nn/site.py", "import sheafstate.modeling"),
    "up, relative": ("sheafstate/nn/site.py", "from ..modeling import SheafStateModel"),
    "up, relative package": ("sheafstate/nn/site.py", "from .. import modeling"),
    "up, package then module": ("sheafstate/state.py", "from sheafstate import modeling"),
    "up, in a function": ("sheafstate/nn/site.py", "def f():\n    from sheafstate.modeling import SheafStateModel"),
    "up, while type checking": (
        "sheafstate/nn/site.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sheafstate.modeling import SheafStateModel",
    ),
    "up, dynamic": ("sheafstate/config.py", "import importlib\nimportlib.import_module('sheafstate.modeling')"),
    "up, by the root's name": ("sheafstate/training/loop.py", "from sheafstate import SheafStateForCausalLM"),
    "up, ops on errors": ("sheafstate/ops/scan.py", "from sheafstate.errors import InputError"),
    "sideways, letters": ("sheafstate/nn/dynamics.py", "from sheafstate.nn.site import Site"),
    "sideways, letters by their folder": ("sheafstate/nn/dynamics.py", "from sheafstate.nn import Site"),
    "sideways, a letter on another's file": ("sheafstate/nn/gluing.py", "from .transport_local import LocalReader"),
    "sideways, a letter's file": ("sheafstate/nn/transport_local.py", "from .site import Site"),
    "sideways, records on a letter": ("sheafstate/nn/records.py", "from sheafstate.nn.gluing import Glued"),
    "sideways, training on evaluation": ("sheafstate/training/loop.py", "from sheafstate.evaluation import score"),
    "sideways, data on patches": ("sheafstate/data/pack.py", "from sheafstate.patches import PatchType"),
    "block from a letter": ("sheafstate/nn/experts.py", "from sheafstate.nn.block import Block"),
    "report on model code": ("sheafstate/report/plots.py", "from sheafstate.edges import EdgeList"),
    "simulation on config": ("sheafstate/simulation/site.py", "from sheafstate.config import SheafStateConfig"),
    "accounting on the model": ("sheafstate/accounting.py", "from sheafstate.modeling import SheafStateModel"),
    "no such part": ("sheafstate/extras.py", "from sheafstate.errors import InputError"),
}


TARGETS = (
    *("config", "modeling", "edges", "errors", "patches", "evaluation/score"),
    *("nn/site", "nn/gluing", "nn/transport_local", "nn/block"),
)


@pytest.mark.parametrize(("path", "text"), UPWARD.values(), ids=UPWARD)
def test_upward_is_seen(build: Build, path: str, text: str) -> None:
    files = {f"sheafstate/{name}.py": "" for name in TARGETS} | {path: text}
    assert len(faults(build, import_rules.upward, files)) == 1


def test_downward_is_let_through(build: Build) -> None:
    files = {
        "sheafstate/shapes.py": "from jaxtyping import Float",
        "sheafstate/errors.py": "",
        "sheafstate/patches.py": "import enum",
        "sheafstate/config.py": "from .patches import PatchType\nfrom .errors import InputError",
        "sheafstate/accounting.py": "from sheafstate.config import SheafStateConfig",
        "sheafstate/ops/scan.py": "import torch\nfrom sheafstate.shapes import Float",
        "sheafstate/nn/records.py": "from sheafstate.shapes import Float",
        "sheafstate/nn/site.py": "from sheafstate.nn.records import Site\nfrom sheafstate.ops import scan",
        "sheafstate/nn/transport_local.py": "from sheafstate.nn.records import Site",
        "sheafstate/nn/transport.py": "from sheafstate.nn.transport_local import LocalReader",
        "sheafstate/nn/block.py": "from sheafstate.nn import records, site",
        "sheafstate/rows.py": "from sheafstate.state import RowState",
        "sheafstate/state.py": "from sheafstate.nn.records import Ring",
        "sheafstate/modeling.py": "from sheafstate.nn.block import Block\nfrom sheafstate import __version__",
        "sheafstate/training/loop.py": "from sheafstate.modeling import M\nfrom sheafstate.data.pack import pack",
        "sheafstate/data/pack.py": "from sheafstate.errors import InputError",
        "sheafstate/report/plots.py": "import matplotlib\nfrom sheafstate.report.schema import Site",
        "sheafstate/report/schema.py": "import json",
        "sheafstate/cli/train.py": "import typer\ndef train():\n    from sheafstate.training.loop import run",
    }
    for rule in HOUSE_RULES:
        assert faults(build, rule, files) == []


def test_circles_are_seen(build: Build) -> None:
    files = {
        "sheafstate/cli/a.py": "from sheafstate.cli import b",
        "sheafstate/cli/b.py": "def f():\n    from .c import x",
        "sheafstate/cli/c.py": "from .a import y",
        "sheafstate/cli/d.py": "from .a import y",
    }
    circular = faults(build, import_rules.circular, files)
    assert [fault.split()[0] for fault in circular] == [f"sheafstate.cli.{name}" for name in "abc"]


THIRD_PARTY = {
    "matplotlib in evaluation": ("sheafstate/evaluation/a.py", "def f():\n    import matplotlib.pyplot as plt"),
    "torch in report": ("sheafstate/report/a.py", "import torch"),
    "torch in simulation": ("sheafstate/simulation/a.py", "from torch import nn"),
    "transformers in a letter": ("sheafstate/nn/experts.py", "from transformers.activations import ACT2FN"),
    "rich in evaluation": ("sheafstate/evaluation/a.py", "import rich.progress"),
    "typer in training": ("sheafstate/training/a.py", "import typer"),
    "a stranger": ("sheafstate/modeling.py", "import einops"),
    "test tools in the package": ("sheafstate/modeling.py", "import beartype"),
}


@pytest.mark.parametrize(("path", "text"), THIRD_PARTY.values(), ids=THIRD_PARTY)
def test_third_parties_out_of_place_are_seen(build: Build, path: str, text: str) -> None:
    assert len(faults(build, import_rules.third_party, {path: text})) == 1


def test_a_second_adapter_is_seen(build: Build) -> None:
    files = {"sheafstate/evaluation/a.py": "import lm_eval", "sheafstate/evaluation/b.py": "from lm_eval import api"}
    assert len(faults(build, import_rules.third_party, files)) == 1


def test_the_undeclared_are_seen(build: Build, tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(
        '[project]\ndependencies = ["torch>=2.9", "scikit-learn"]\n'
        '[project.optional-dependencies]\ndev = ["pytest>=8"]\neval = ["lm_eval>=0.4"]\n'
    )
    text = "import json, torch, scikit_learn, lm_eval\nimport pytest\nimport tqdm"
    found = import_rules.undeclared(read_imports(build({"sheafstate/a.py": text})), pyproject)
    assert [fault.split()[1] for fault in found] == ["pytest", "tqdm"]


HEAVY = {
    "torch": "import torch",
    "our own model": "from sheafstate.modeling import SheafStateForCausalLM",
    "in a class body": "class A:\n    import numpy",
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_heavy_command_lines_are_seen(build: Build, text: str) -> None:
    files = {"sheafstate/modeling.py": "", "sheafstate/cli/a.py": text}
    assert len(faults(build, import_rules.heavy_at_the_door, files)) == 1
