"""Addresses, fake quantisation: ties, zeros, scales. Against their twins: tests/contract/test_kernels.py."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.errors import InputError
from sheafstate.ops.address import assign_addresses, random_directions, unit_vectors
from sheafstate.ops.quantize import (
    Quantization,
    fake_quantize,
    fake_quantize_activation,
    fake_quantize_reference,
)

LOW_BIT = [Quantization.INT8, Quantization.INT4, Quantization.TERNARY]


def test_ties_go_to_the_lowest_address_and_weigh_nothing() -> None:
    directions = torch.eye(2, dtype=torch.float64)[None]
    z = torch.tensor([[[[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]]]], dtype=torch.float64)
    address, unity = assign_addresses(z, directions)
    assert address.flatten().tolist() == [0, 2, 0, 1]
    assert unity.abs().max() == 0


@pytest.mark.parametrize(("width", "count"), [(8, 2), (8, 8), (16, 32), (6, 9)])
def test_directions_give_every_address_its_share(width: int, count: int) -> None:
    torch.manual_seed(0)
    directions = random_directions(3, width, count).double()
    assert directions.shape == (3, width, count)
    block = directions[..., : min(width, count)]
    torch.testing.assert_close(
        block.mT @ block, width * torch.eye(block.shape[-1]).double().expand(3, -1, -1), rtol=0, atol=1e-4
    )
    z = unit_vectors(torch.randn(1, 3, 40_000, width, dtype=torch.float64))
    address, _ = assign_addresses(z, directions)
    shares = torch.stack([torch.bincount(of_map, minlength=2 * count) for of_map in address[0]]) / 40_000 * 2 * count
    # of directions at right angles an even share; of several turns together nearly so, where independent ones get
    # from a hundredth to four times theirs
    most = 1.1 if count <= width else 1.5
    assert 1 / most < shares.min() <= shares.max() < most
    assert not torch.equal(directions[0], directions[1])


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


def test_a_configuration_chooses_its_directions() -> None:
    for kind, even in (("orthogonal", True), ("independent", False)):
        config = SheafStateConfig(heads={"retrieval": 2}, d_address=4, num_addresses=8, directions=kind)
        found = SheafStateForCausalLM(config).model.layers[0].site.directions
        assert torch.allclose(found.mT @ found, 4 * torch.eye(4).expand(2, -1, -1), atol=1e-5) == even
    with pytest.raises(InputError, match="directions must be one of independent, orthogonal"):
        SheafStateConfig(directions="even")
