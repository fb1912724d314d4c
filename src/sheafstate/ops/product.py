"""The product of a linear map, x W^T, by the library that is fastest at it.

For float32 on a CPU PyTorch calls MKL, which on processors of other makers than its own leaves half of the rate of wide
vector registers unused; oneDNN, which PyTorch uses for bfloat16 and in compiled graphs, does not
(docs/performance.md). The gradient of the weight stays with MKL: its operands lie the wrong way round for oneDNN.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from sheafstate.shapes import Float, Tensor

__all__ = ["linear_product", "linear_product_reference", "transposed_product"]

WEIGHTS = 2**17
"""Numbers of a weight from which on one row is worth it, however few rows there are."""
OPERATIONS = 2**23
"""Multiplies from which on any shape is worth it."""

_ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None


def linear_product_reference(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> Tensor:
    """Every output as a sum of products; the twin of :func:`linear_product`."""
    return torch.stack([(x * row).sum(-1) for row in weight.unbind()], -1)


def linear_product(x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"]) -> Float[Tensor, "*batch out"]:
    """x W^T, with gradients; what ``torch.nn.functional.linear`` gives up to rounding.

    Args:
        x: vectors.
        weight: W.
    """
    if not _is_faster(x, weight):
        return functional.linear(x, weight)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        product: Tensor = _Product.apply(x, weight)
        return product
    return _by_onednn(x, weight)


def transposed_product(y: Float[Tensor, "*batch out"], weight: Float[Tensor, "out in"]) -> Float[Tensor, "*batch in"]:
    """y W, without gradients: what a linear map's gradient is on its way back.

    Args:
        y: vectors.
        weight: W.
    """
    return _by_onednn(y, weight.T) if _is_faster(y, weight) else y @ weight


def _is_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is worth it; never where a graph is traced, a type is cast or a tensor is no plain one."""
    size = weight.numel()
    if size < WEIGHTS and x.numel() // max(1, x.shape[-1]) * size < OPERATIONS:
        return False
    return (
        _ONEDNN is not None
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and type(weight) in (torch.Tensor, torch.nn.Parameter)
        and type(x) in (torch.Tensor, torch.nn.Parameter)
        and x.dim() > 1
        and x.numel() > 0
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not is_in_torch_dispatch_mode()
        and bool(torch.backends.mkldnn.enabled)
    )


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    assert _ONEDNN is not None
    product: Tensor = _ONEDNN(x, weight, None, "none", [], "")
    return product


class _Product(torch.autograd.Function):
    """dx = dy W, dW = dy^T x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        to_x = transposed_product(gradient, weight) if ctx.needs_input_grad[0] else None
        to_weight = gradient.flatten(0, -2).T @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return to_x, to_weight
