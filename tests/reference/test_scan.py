"""The chunked scan and the convolution against their twins, in values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.ops.scan import (
    causal_convolution,
    causal_convolution_reference,
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


def gradients(outputs: tuple, inputs: tuple) -> list[torch.Tensor]:
    weights = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs]
    total = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
    return torch.autograd.grad(total, [leaf for leaf in inputs if leaf.requires_grad])


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 200, 1000])
def test_scan_equals_the_recurrence(length) -> None:
    inputs = scan_inputs(length)
    fast, slow = selective_scan(*inputs), selective_scan_reference(*inputs)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    if length <= 200:
        for a, b in zip(gradients(fast, inputs), gradients(slow, inputs), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@given(st.integers(1, 40), st.integers(1, 12), st.floats(0, 1))
def test_any_chunk_gives_the_same(length, chunk, starts) -> None:
    inputs = scan_inputs(length, starts=starts)
    for a, b in zip(selective_scan(*inputs, chunk=chunk), selective_scan_reference(*inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 80.0])
def test_scan_in_float32_stays_close_over_extreme_decays(scale) -> None:
    inputs = list(scan_inputs(2048))
    inputs[2] = (-torch.rand(2, 2048, 3, dtype=torch.float64) * scale).requires_grad_()
    single = [leaf.detach().float().requires_grad_() if leaf.is_floating_point() else leaf for leaf in inputs]
    exact = selective_scan(*[leaf.double() if leaf.is_floating_point() else leaf for leaf in single])
    fast = selective_scan(*single)
    spread = exact[0].abs().max()
    for a, b in zip(fast, exact, strict=True):
        assert torch.isfinite(a).all()
        assert (a - b).abs().max() <= 1e-4 * spread
    for gradient in gradients(fast, tuple(single)):
        assert torch.isfinite(gradient).all()


def test_a_start_stops_state_and_gradient() -> None:
    inputs = scan_inputs(20, starts=0.0)
    start = torch.zeros(2, 20, dtype=torch.bool)
    start[:, 11] = True
    outputs, _ = selective_scan(*inputs[:5], start, inputs[6])
    (gradient,) = torch.autograd.grad(outputs[:, 11:].sum(), inputs[0])
    assert gradient[:, :11].abs().max() == 0
    assert gradient[:, 11:].abs().min() >= 0


@given(length=st.integers(1, 12), taps=st.integers(1, 5))
def test_convolution_equals_its_taps(length, taps) -> None:
    x = torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, taps, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    segment = (torch.rand(2, length) < 0.3).cumsum(1)
    tail = torch.randn(2, taps - 1, 3, dtype=torch.float64)
    fast = causal_convolution(x, weight, bias, segment, tail)
    slow = causal_convolution_reference(x, weight, bias, segment, tail)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    inputs = (x, weight, bias)
    for a, b in zip(gradients((fast,), inputs), gradients((slow,), inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
