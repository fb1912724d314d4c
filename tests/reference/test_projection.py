"""A projection in parts is the whole one, split: values and gradients, quantised and in autocast, wrapped or hooked."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.nn.quant_linear import QuantLinear, project
from tests.variants import examples

MODES = ("none", "int8", "int4", "ternary")


def both(linear: torch.nn.Module, x: torch.Tensor, sizes: list[int]) -> list[list[torch.Tensor]]:
    """Outputs and gradients of the parts, by the projection and by a plain split."""
    found = []
    for split in (lambda x: project(linear, x, sizes), lambda x: linear(x).split(sizes, -1)):
        linear.zero_grad()
        entered = x.clone().requires_grad_()
        parts = split(entered)
        # a part that nothing is made of, and slopes that are no contiguous tensors
        used = [part for index, part in enumerate(parts) if index != 1]
        sum((part.transpose(0, 1) * (1 + torch.arange(part.shape[-1]))).sin().sum() for part in used).backward()
        found.append([*parts, entered.grad, linear.weight.grad.clone()])
    return found


@examples(30)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(sum),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 7)),
    mode=st.sampled_from(MODES),
    seed=st.integers(0, 2**31),
)
def test_parts_equal_a_split(sizes: list[int], shape: tuple[int, int], mode: str, seed: int) -> None:
    torch.manual_seed(seed)
    linear = QuantLinear(6, sum(sizes), mode).double()
    x = torch.randn(*shape, 6, dtype=torch.float64)
    for ours, theirs in zip(*both(linear, x, sizes), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_in_autocast_parts_are_those_of_autocast() -> None:
    torch.manual_seed(0)
    linear, x = QuantLinear(16, 24), torch.randn(2, 5, 16)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = both(linear, x, [8, 8, 8])
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_what_is_put_around_a_map_is_called() -> None:
    linear, x, calls = QuantLinear(4, 6), torch.randn(1, 2, 4), []
    handle = linear.register_forward_hook(lambda *_: calls.append(1))
    project(linear, x, [2, 4])
    handle.remove()

    class Wrapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(2)
            return linear(x)

    project(Wrapped(), x, [2, 4])
    assert calls == [1, 2]


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_map_still_passes_gradients(frozen: bool) -> None:
    linear = QuantLinear(4, 6).requires_grad_(not frozen)
    x = torch.randn(1, 2, 4, requires_grad=True)
    sum(part.square().sum() for part in project(linear, x, [2, 4])).backward()
    assert x.grad.abs().min() > 0
    assert (linear.weight.grad is None) == frozen
