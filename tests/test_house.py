"""The settings of ``conftest.py`` are in force."""

import os
import random
import sys
from pathlib import Path

import hypothesis
import jaxtyping
import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from jaxtyping import Float
from torch import Tensor

from .conftest import SEED, SHAPE_CHECKED

DRAWN: list[float] = []


def test_nothing_reaches_for_the_network() -> None:
    assert {os.environ[f"{name}_OFFLINE"] for name in ("HF_HUB", "HF_DATASETS", "TRANSFORMERS")} == {"1"}


def test_threads_and_backend() -> None:
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    assert mpl.get_backend().lower() == "agg"


@pytest.mark.parametrize("run", [1, 2])
def test_every_test_starts_from_the_same_random_state(run: int) -> None:
    expected = (random.Random(SEED).random(), np.random.RandomState(SEED).rand())
    assert (random.random(), np.random.rand()) == expected
    assert torch.initial_seed() == SEED


@hypothesis.given(st.integers())
def test_examples_share_a_torch_seed(value: int) -> None:
    DRAWN.append(torch.rand(()).item())
    assert DRAWN[0] == DRAWN[-1]


CHECKED_SOURCE = """
from sheafstate.shapes import Float, Tensor

def scale(x: Float[Tensor, "B T"], by: Float[Tensor, "T"]) -> Float[Tensor, "B T"]:
    return x * by
"""


@pytest.fixture
def scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function in a module that the import hook takes for one of ours."""
    name = "shape_checked_probe"
    (tmp_path / f"{name}.py").write_text(CHECKED_SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    with jaxtyping.install_import_hook([name], "beartype.beartype"):
        module = __import__(name)
    yield module.scale
    del sys.modules[name]


def test_a_wrong_shape_is_an_error(scale) -> None:
    assert scale(torch.ones(2, 3), torch.ones(3)).shape == (2, 3)
    with pytest.raises(jaxtyping.TypeCheckError):
        scale(torch.ones(2, 3), torch.ones(2, 3))


def test_ops_and_nn_are_under_the_hook() -> None:
    hooks = [f for f in sys.meta_path if type(f).__module__.startswith("jaxtyping")]
    assert any(hook.should_instrument(f"{package}.any_file") for hook in hooks for package in SHAPE_CHECKED)
    assert not any(hook.should_instrument("sheafstate.modeling") for hook in hooks)


def test_a_wrong_shape_is_an_error_in_a_real_kernel() -> None:
    from sheafstate.ops.address import assign_addresses

    assert assign_addresses(torch.ones(1, 2, 3, 4), torch.ones(2, 4, 8))[0].shape == (1, 2, 3)
    with pytest.raises(jaxtyping.TypeCheckError):
        assign_addresses(torch.ones(1, 2, 3, 4), torch.ones(3, 4, 8))


def test_unchecked_shapes_compile_to_one_graph(scale, unchecked_shapes) -> None:
    def twice(x: Float[Tensor, "B T"], by: Float[Tensor, " T"]) -> Tensor:
        return scale(scale(x, by), by)

    compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 3), torch.full((3,), 2.0)), torch.full((2, 3), 4.0))
