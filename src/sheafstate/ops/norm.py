"""Root-mean-square normalisation: y = x w / sqrt(mean(x^2) + eps).

PyTorch composes it of single operations, whose mean takes most of the time; here it is one pass for the norm and one
for the product, and as few on the way back. Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from sheafstate.ops import cast, constant, wider
from sheafstate.shapes import Float, Tensor

__all__ = ["rms_norm", "rms_norm_reference"]


def rms_norm_reference(
    x: Float[Tensor, "*batch D"], weight: Float[Tensor, " D"], eps: float
) -> Float[Tensor, "*batch D"]:
    """Normalise vector by vector; the twin of :func:`rms_norm`."""
    rows = [row / torch.sqrt(sum(a * a for a in row.unbind()) / len(row) + eps) for row in x.flatten(0, -2)]
    return torch.stack(rows).view_as(x) * weight


def rms_norm(x: Float[Tensor, "*batch D"], weight: Float[Tensor, " D"], eps: float) -> Float[Tensor, "*batch D"]:
    """Normalise vectors, in float32 or wider.

    Args:
        x: vectors.
        weight: w.
        eps: added to the mean square.
    """
    if torch.compiler.is_compiling():
        return torch.nn.functional.rms_norm(x, weight.shape, cast(weight, x.dtype), eps)
    wide = cast(x, wider(x.dtype))
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _Norm.apply(wide, cast(weight, wide.dtype), eps)
    else:
        y = (wide * _inverse(wide, eps)).mul_(weight)
    return cast(y, x.dtype)


def _inverse(x: Float[Tensor, "*batch D"], eps: float) -> Float[Tensor, "*batch one"]:
    """1 / sqrt(mean(x^2) + eps)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.addcmul(constant(eps, x.dtype, x.device), norm, norm, value=1 / x.shape[-1]).rsqrt_()


class _Norm(torch.autograd.Function):
    """With r = 1 / sqrt(mean(x^2) + eps) and g' = g w: dx = r g' - r^3 x sum(g' x) / D, dw = sum over rows of g x r."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = _inverse(x, eps)
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, inverse = ctx.saved_tensors
        products = (gradient * x).flatten(0, -2)
        to_weight = products.T @ inverse.flatten()
        along = (products @ weight).view_as(inverse) * inverse.pow(3).div_(-x.shape[-1])
        return (gradient * weight).mul_(inverse).addcmul_(x, along), to_weight, None
