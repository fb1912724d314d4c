"""The chunked scan: chunks of any size, starts. Against its twin at any length: tests/contract/test_kernels.py."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.ops.scan import (
    selective_scan,
    selective_scan_reference,
)


def scan_inputs(length: int, heads: int = 3, d_state: int = 4, width: int = 5, starts: float = 0.1) -> tuple:
    """Random inputs whose leaves take gradients."""
    leaves = [
        torch.randn(2, length, heads, width, dtype=torch.float64),
        torch.rand(2, length, heads, dtype=torch.float64),
        -torch.rand(2, length, heads, dtype=torch.float64) * 3,
        torch.randn(2, length, d_state, dtype=torch.float64),
        torch.randn(2, length, d_state, dtype=torch.float64),
        torch.rand(2, length) < starts,
        torch.randn(2, heads, d_state, width, dtype=torch.float64),
    ]
    return tuple(leaf.requires_grad_() if leaf.is_floating_point() else leaf for leaf in leaves)


@given(st.integers(1, 40), st.integers(1, 12), st.floats(0, 1))
def test_any_chunk_gives_the_same(length, chunk, starts) -> None:
    inputs = scan_inputs(length, starts=starts)
    for a, b in zip(selective_scan(*inputs, chunk=chunk), selective_scan_reference(*inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_a_start_stops_state_and_gradient() -> None:
    inputs = scan_inputs(20, starts=0.0)
    start = torch.zeros(2, 20, dtype=torch.bool)
    start[:, 11] = True
    outputs, _ = selective_scan(*inputs[:5], start, inputs[6])
    (gradient,) = torch.autograd.grad(outputs[:, 11:].sum(), inputs[0])
    assert gradient[:, :11].abs().max() == 0
    assert gradient[:, 11:].abs().min() >= 0
