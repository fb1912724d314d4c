"""Promise 15: the compiled model equals the eager one, at other lengths too, forwards, backwards and step by step.

The whole model is one graph. Lengths are traced as symbols but for the number of chunks of the scan, whose pass is a
loop: a model with dynamics is compiled once for every 64 positions more.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sheafstate.ops import constant
from sheafstate.ops.banded import query_rotations
from tests.variants import VARIANTS

from .promises import Mutation, contract

LOOKS_AT_THE_MASK = Mutation(
    "rows.py",
    "return None if _may_look() and bool(mask.all()) else mask",
    "return None if bool(mask.all()) else mask",
    "a compiled graph looks at the data of the mask",
)
COUNTS_TOKENS = Mutation(
    "nn/experts.py",
    "torch.compiler.is_compiling()",
    "False",
    "a compiled graph counts each expert's tokens",
)

MADE_ANEW = Mutation(
    "ops/__init__.py",
    "return torch.compiler.assume_constant_result(_kept(function))",
    "return torch.compiler.assume_constant_result(made_once(function))",
    "a compiled graph gets a table anew for every layer",
)

ROOT = Path(__file__).parents[2]
every_variant = pytest.mark.parametrize("name", VARIANTS)


def assert_compiled_equals_eager(name: str, run: str, backend: str, lengths: list[int], **options: object) -> None:
    arguments = [name, run, backend, json.dumps(lengths), json.dumps(options)]
    command = [sys.executable, "-m", "tests.contract.compiled_runs", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@contract(15, breaks=LOOKS_AT_THE_MASK)
def test_a_compiled_window_equals_the_eager_one_at_other_lengths() -> None:
    assert_compiled_equals_eager("window", "forward", "aot_eager", [9, 33, 20], fullgraph=True)


@contract(15, breaks=COUNTS_TOKENS)
def test_the_compiled_mixture_is_one_graph_and_equals_the_eager_one() -> None:
    assert_compiled_equals_eager("mixture", "forward", "aot_eager", [21], fullgraph=True, dynamic=False)


@contract(15, breaks=MADE_ANEW)
def test_a_table_is_one_constant_for_all_layers_of_a_graph(monkeypatch) -> None:
    """A graph refuses two constants of one name; a name is that of the code which made it."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    arguments = 4, 8, 10000.0, torch.float32, torch.device("cpu")
    assert query_rotations(*arguments)[0] is query_rotations(*arguments)[0]
    assert query_rotations.__code__.co_name == "query_rotations"
    assert constant.__code__.co_name == "constant"


@pytest.mark.slow
@pytest.mark.timeout(1300)
@contract(15, breaks=LOOKS_AT_THE_MASK)
@every_variant
def test_every_kind_trains_compiled_at_several_lengths_in_a_row(name) -> None:
    assert_compiled_equals_eager(name, "train", "aot_eager", [9, 70, 33, 130], fullgraph=True)


@pytest.mark.slow
@pytest.mark.timeout(1300)
@contract(15)
@pytest.mark.parametrize("quantization", ["int8", "int4", "ternary"])
def test_low_bits_train_compiled(quantization) -> None:
    config = {"quantization": quantization}
    assert_compiled_equals_eager("mixture", "train", "aot_eager", [33], fullgraph=True, dynamic=False, config=config)


@pytest.mark.slow
@pytest.mark.timeout(1300)
@contract(15)
@every_variant
def test_every_kind_decodes_compiled(name) -> None:
    assert_compiled_equals_eager(name, "decode", "aot_eager", [20])


@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@contract(15)
@every_variant
def test_every_kind_trains_compiled_to_machine_code(name) -> None:
    assert_compiled_equals_eager(name, "train", "inductor", [40], dynamic=False)


@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@contract(15)
def test_several_layers_decode_compiled_to_machine_code() -> None:
    assert_compiled_equals_eager("mixture", "decode", "inductor", [20], config={"num_layers": 3})
