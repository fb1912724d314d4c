"""Windowed attention for reading against its twin and against the banded softmax."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.ops.banded import banded_softmax
from sheafstate.ops.window import windowed_attention, windowed_attention_reference


def rows(length: int, before: int, seed: int, width: int = 6) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values, and bands that begin anew where a document does."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, length, 3, width, dtype=torch.float64, generator=generator)
    k, v = torch.randn(2, 2, before + length, 3, width, dtype=torch.float64, generator=generator)
    slot = torch.arange(before, before + length)
    begins = torch.rand(2, length, generator=generator) < 0.1
    first = torch.where(begins, slot, 0).cummax(1).values
    return q, k, v, first


@given(
    length=st.sampled_from([1, 2, 31, 32, 33, 64, 65]) | st.integers(1, 80),
    window=st.integers(1, 40),
    carried=st.booleans(),
    block=st.sampled_from([1, 7, 32]),
    seed=st.integers(0, 2**16),
)
def test_reading_a_window_equals_its_twin(length: int, window: int, carried: bool, block: int, seed: int) -> None:
    inputs = rows(length, window if carried else 0, seed)
    fast = windowed_attention(*inputs, window, 100.0, block)
    torch.testing.assert_close(fast, windowed_attention_reference(*inputs, window, 100.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("before", [0, 16])
def test_reading_and_training_compute_the_same(before: int) -> None:
    q, k, v, first = rows(100, before, 0)
    stop = torch.arange(before + 1, before + 101).expand_as(first)
    by_head = (t.transpose(1, 2).flatten(0, 1) for t in (q, k, v))
    banded = banded_softmax(*by_head, stop, first, 16, theta=1e4)[0].unflatten(0, (2, 3)).transpose(1, 2)
    torch.testing.assert_close(windowed_attention(q, k, v, first, 16, 1e4), banded, rtol=0, atol=1e-12)
