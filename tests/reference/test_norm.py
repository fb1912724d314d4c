"""Normalisation against its twin and against PyTorch's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.nn.norm import RMSNorm
from sheafstate.ops.norm import rms_norm, rms_norm_reference


@given(
    rows=st.integers(1, 5),
    width=st.integers(1, 9),
    size=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_equal_the_twin(rows: int, width: int, size: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = (size * torch.randn(rows, width, dtype=torch.float64, generator=generator)).requires_grad_()
    weight = torch.randn(width, dtype=torch.float64, generator=generator).requires_grad_()
    slope = torch.randn(rows, width, dtype=torch.float64, generator=generator)
    found = []
    for function in (rms_norm, rms_norm_reference):
        y = function(x, weight, 1e-6)
        found.append([y.detach(), *torch.autograd.grad((y * slope).sum(), (x, weight))])
    for fast, slow in zip(*found, strict=True):
        torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(rms_norm(x, weight, 1e-6), found[1][0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad", [False, True])
def test_in_every_precision_it_is_the_module_of_torch(dtype: torch.dtype, grad: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = RMSNorm(48, 1e-6).to(dtype), torch.nn.RMSNorm(48, 1e-6, dtype=dtype)
    with torch.no_grad():
        ours.weight.normal_()
        theirs.weight.copy_(ours.weight)
    x = torch.randn(3, 5, 48).to(dtype)
    with torch.set_grad_enabled(grad):
        y, expected = ours(x), theirs(x)
    assert y.dtype == dtype
    assert y.requires_grad == grad
    torch.testing.assert_close(y, expected)
