"""Addresses, fake quantisation and expert routing against their twins."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import linear

from sheafstate.ops.address import assign_addresses, assign_addresses_reference, unit_vectors
from sheafstate.ops.quantize import (
    Quantization,
    fake_quantize,
    fake_quantize_activation,
    fake_quantize_reference,
)
from sheafstate.ops.route import routed_swiglu, routed_swiglu_reference

LOW_BIT = [Quantization.INT8, Quantization.INT4, Quantization.TERNARY]


@given(half=st.integers(1, 5), length=st.integers(1, 6), width=st.integers(1, 5))
def test_addresses_equal_a_loop(half, length, width) -> None:
    z = unit_vectors(torch.randn(2, 3, length, width, dtype=torch.float64))
    directions = torch.randn(3, width, half, dtype=torch.float64)
    fast, slow = assign_addresses(z, directions), assign_addresses_reference(z, directions)
    assert torch.equal(fast[0], slow[0])
    torch.testing.assert_close(fast[1], slow[1], rtol=0, atol=1e-12)


def test_ties_go_to_the_lowest_address_and_weigh_nothing() -> None:
    directions = torch.eye(2, dtype=torch.float64)[None]
    z = torch.tensor([[[[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]]]], dtype=torch.float64)
    address, unity = assign_addresses(z, directions)
    assert address.flatten().tolist() == [0, 2, 0, 1]
    assert unity.abs().max() == 0


def test_unit_vectors_of_nothing_are_finite() -> None:
    assert torch.equal(unit_vectors(torch.zeros(1, 3)), torch.zeros(1, 3))


@pytest.mark.parametrize("mode", LOW_BIT)
@given(rows=st.integers(1, 4), columns=st.integers(1, 9), scale=st.floats(1e-6, 1e6))
def test_fake_quantisation_equals_a_loop(mode, rows, columns, scale) -> None:
    weight = torch.randn(rows, columns, dtype=torch.float64) * scale
    torch.testing.assert_close(fake_quantize(weight, mode), fake_quantize_reference(weight, mode), rtol=1e-12, atol=0)


@pytest.mark.parametrize("mode", LOW_BIT)
def test_the_gradient_passes_straight_through(mode) -> None:
    weight, x = torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    (fake_quantize(weight, mode) * 2).sum().backward()
    (fake_quantize_activation(x) * 3).sum().backward()
    assert torch.equal(weight.grad, torch.full_like(weight, 2))
    assert torch.equal(x.grad, torch.full_like(x, 3))


@pytest.mark.parametrize("mode", LOW_BIT)
def test_zeros_quantise_to_zeros(mode) -> None:
    assert torch.equal(fake_quantize(torch.zeros(2, 3), mode), torch.zeros(2, 3))
    assert torch.equal(fake_quantize_activation(torch.zeros(2, 3)), torch.zeros(2, 3))


@given(tokens=st.integers(1, 20), experts=st.integers(1, 5))
def test_routing_equals_computing_every_expert(tokens, experts) -> None:
    x = torch.randn(tokens, 6, dtype=torch.float64, requires_grad=True)
    up = torch.randn(experts, 8, 6, dtype=torch.float64, requires_grad=True)
    down = torch.randn(experts, 6, 4, dtype=torch.float64, requires_grad=True)
    maps = [(partial(linear, weight=up[e]), partial(linear, weight=down[e])) for e in range(experts)]
    choice = torch.randint(experts, (tokens,))
    fast, slow = routed_swiglu(x, choice, maps), routed_swiglu_reference(x, choice, maps)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
    grads = [torch.autograd.grad(out.square().sum(), (x, up, down)) for out in (fast, slow)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
