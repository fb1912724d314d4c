"""The product of a linear map by either library: values, gradients, and where the faster one must stay away."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from sheafstate.ops import product
from sheafstate.ops.product import linear_product, transposed_product

SHAPES = [(1, 512, 400), (7, 640, 320), (300, 96, 320), (2, 5, 1)]
"""Rows, inputs and outputs: few rows of a large weight, many of a small one, and too little for either."""


def drawn(rows: int, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows + inputs)
    x, weight = (torch.randn(*s, generator=generator) for s in ((2, rows, inputs), (outputs, inputs)))
    return x.requires_grad_(), weight.requires_grad_()


@pytest.fixture
def calls(monkeypatch) -> list[torch.Size]:
    """Shapes of what oneDNN is given."""
    if product._ONEDNN is None:
        pytest.skip("PyTorch was built without oneDNN")
    seen, through = [], product._ONEDNN

    def noting(x: torch.Tensor, *rest: object) -> torch.Tensor:
        seen.append(x.shape)
        return through(x, *rest)

    monkeypatch.setattr(product, "_ONEDNN", noting)
    return seen


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_are_those_of_float64(shape, calls) -> None:
    x, weight = drawn(*shape)
    exact_x, exact_weight = (t.detach().double().requires_grad_() for t in (x, weight))
    y, exact = linear_product(x, weight), functional.linear(exact_x, exact_weight)
    slope = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).view_as(exact)
    found = torch.autograd.grad((y * slope.float()).sum(), (x, weight))
    wanted = torch.autograd.grad((exact * slope).sum(), (exact_x, exact_weight))
    for a, b in ((y, exact), *zip(found, wanted, strict=True)):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * float(b.detach().abs().max()))
    assert bool(calls) == (shape != SHAPES[-1])


def test_gradients_nobody_asks_for_are_not_made(calls) -> None:
    x, weight = drawn(*SHAPES[0])
    linear_product(x.detach(), weight).sum().backward()
    assert x.grad is None
    assert weight.grad is not None
    assert len(calls) == 1
    linear_product(x, weight.detach()).sum().backward()
    assert x.grad is not None


def test_a_transposed_product_is_the_gradient(calls) -> None:
    _, weight = drawn(*SHAPES[1])
    y = torch.randn(14, 320)
    torch.testing.assert_close(transposed_product(y, weight.detach()), y @ weight.detach(), rtol=1e-4, atol=1e-4)
    assert calls


def test_it_stays_away_from_other_types_casts_and_traces(calls, monkeypatch) -> None:
    x, weight = (t.detach() for t in drawn(*SHAPES[0]))
    assert linear_product(x.double(), weight.double()).dtype == torch.float64
    assert linear_product(x.bfloat16(), weight.bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_product(x, weight).dtype == torch.bfloat16
    with FakeTensorMode() as mode:
        fake = linear_product(mode.from_tensor(x), mode.from_tensor(weight))
    assert fake.shape == (2, 1, 400)
    assert linear_product(x[:, :0], weight).shape == (2, 0, 400)
    assert linear_product(x[0, 0], weight).shape == (400,)
    with monkeypatch.context() as patched:
        patched.setattr(torch.compiler, "is_compiling", lambda: True)
        linear_product(x, weight)
    torch._C._set_mkldnn_enabled(False)
    try:
        linear_product(x, weight)
    finally:
        torch._C._set_mkldnn_enabled(True)
    assert not calls
    linear_product(x, weight)
    assert calls
