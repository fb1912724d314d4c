"""Linear maps that can be low-bit morphisms: the category QuantVect of the hypothesis."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.ops import without_autocast
from sheafstate.ops.packed import pack_codes, packed_linear, packed_width, unpack_weight
from sheafstate.ops.product import linear_product, transposed_product
from sheafstate.ops.quantize import Quantization, fake_quantize, fake_quantize_activation, quantize_weight
from sheafstate.shapes import Float, Int8, Tensor

__all__ = [
    "PackedLinear",
    "QuantLinear",
    "empty_packed",
    "linear_map",
    "packed_map",
    "packed_values",
    "project",
    "quantized_map",
]


def packed_values(weight: Float[Tensor, "*batch out in"], mode: Quantization, prefix: str = "") -> dict[str, Tensor]:
    """What is stored in place of a weight matrix, or of a stack of them: its packed codes and its scales."""
    codes, scale = quantize_weight(weight, mode)
    return {f"{prefix}codes": pack_codes(codes, mode), f"{prefix}scale": scale}


def empty_packed(shape: tuple[int, ...], mode: Quantization, prefix: str = "") -> dict[str, Tensor]:
    """Room for what :func:`packed_values` makes of weights of a shape (..., out, in)."""
    *stack, rows, columns = shape
    codes = torch.zeros(*stack, rows, packed_width(columns, mode), dtype=torch.int8)
    return {
        f"{prefix}codes": codes,
        f"{prefix}scale": torch.zeros(*stack, 1 if mode is Quantization.TERNARY else rows, 1),
    }


def quantized_map(
    x: Float[Tensor, "*batch in"], weight: Float[Tensor, "out in"], mode: Quantization
) -> Float[Tensor, "*batch out"]:
    """x W^T with both quantised as they are used, gradients passed straight through."""
    if mode is Quantization.NONE:
        return linear_product(x, weight)
    return linear_product(fake_quantize_activation(x), fake_quantize(weight, mode))


def packed_map(
    x: Float[Tensor, "*batch in"],
    codes: Int8[Tensor, "out width"],
    scale: Float[Tensor, "rows 1"],
    mode: Quantization,
) -> Float[Tensor, "*batch out"]:
    """x W^T with W packed; where a gradient for x is asked for, W is unpacked for it and the rounding of x passed."""
    if not (torch.is_grad_enabled() and x.requires_grad):
        return packed_linear(x, codes, scale, mode)
    weight = unpack_weight(codes, scale, mode, x.shape[-1])
    return functional.linear(fake_quantize_activation(x), weight.to(x.dtype))


class QuantLinear(nn.Linear):
    """``nn.Linear`` without bias whose weights and inputs are quantised as they are used.

    It stays an ``nn.Linear``, so that libraries that look for linear layers find it. The stored weight is the full
    one; training sees the quantised one through a straight-through gradient.

    Args:
        in_features, out_features: widths.
        quantization: how weights are quantised.
        std: standard deviation at initialisation; 1/sqrt(in_features) if ``None``.
    """

    def __init__(
        self, in_features: int, out_features: int, quantization: str = "none", std: float | None = None
    ) -> None:
        self.quantization = Quantization(quantization)
        self.std = 1 / math.sqrt(in_features) if std is None else std
        super().__init__(in_features, out_features, bias=False)

    def initial_values(self) -> dict[str, Tensor]:
        """A normal weight."""
        return {"weight": torch.randn(self.weight.shape) * self.std}

    def packed_values(self, mode: Quantization) -> dict[str, dict[str, Tensor]]:
        """What a :class:`PackedLinear` holds in place of the weight."""
        return {"weight": packed_values(self.weight, mode)}

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """x W^T with both quantised."""
        return quantized_map(x, self.weight, self.quantization)


class PackedLinear(nn.Linear):
    """A :class:`QuantLinear` whose weight exists in its packed form alone: codes and scales, no parameters.

    Args:
        in_features, out_features: widths.
        quantization: how the weight is stored; not ``none``.
        std: standard deviation of the weight that is packed at initialisation.
    """

    codes: Tensor
    scale: Tensor

    def __init__(self, in_features: int, out_features: int, quantization: str, std: float | None = None) -> None:
        # nn.Linear's own constructor would make the weight
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        self.quantization = Quantization(quantization)
        self.std = 1 / math.sqrt(in_features) if std is None else std
        for name, room in empty_packed((out_features, in_features), self.quantization).items():
            self.register_buffer(name, room)
        self.register_parameter("bias", None)

    def initial_values(self) -> dict[str, Tensor]:
        """A normal weight, packed."""
        return packed_values(torch.randn(self.out_features, self.in_features) * self.std, self.quantization)

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """x W^T with x in 8 bits."""
        return packed_map(x, self.codes, self.scale, self.quantization)


def project(linear: nn.Module, x: Float[Tensor, "*batch in"], sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """A linear map whose output is cut into parts along the last axis.

    While training, a map that nothing has been put around makes every part by itself, so that neither the parts nor,
    on the way back, their gradients are copied: a split's backward pass joins them all in one long tensor.
    """
    if not isinstance(linear, QuantLinear) or not _is_bare(linear) or torch.compiler.is_compiling():
        return linear(x).split_with_sizes(list(sizes), -1)
    weight: Tensor = linear.weight
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return linear(x).split_with_sizes(list(sizes), -1)
    if linear.quantization is not Quantization.NONE:
        x, weight = fake_quantize_activation(x), fake_quantize(weight, linear.quantization)
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    return _SplitLinear.apply(x, weight, tuple(sizes))


def _is_bare(linear: QuantLinear) -> bool:
    """Whether it is what the layer made: no adapter, no hook, no weight of another kind."""
    hooked = linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks
    return type(linear) is QuantLinear and type(linear.weight) is nn.Parameter and not hooked


class _SplitLinear(torch.autograd.Function):
    """x W^T in parts of W's rows, each a tensor of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.sizes = sizes
        with without_autocast(x):
            return tuple(linear_product(x, part) for part in weight.split(sizes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        to_weight, rows = torch.empty_like(weight), x.flatten(0, -2)
        to_x: Tensor | None = None
        parts = zip(gradients, weight.split(ctx.sizes), to_weight.split(ctx.sizes), strict=True)
        for gradient, part, to_part in parts:
            flat = gradient.reshape(len(rows), -1)
            torch.mm(flat.T, rows, out=to_part)
            found = transposed_product(flat, part)
            to_x = found if to_x is None else to_x.add_(found)
        assert to_x is not None
        return to_x.view_as(x), to_weight, None


def linear_map(
    config: SheafStateConfig, in_features: int, out_features: int, std: float | None = None
) -> QuantLinear | PackedLinear:
    """A linear map of a layer, stored as the configuration says."""
    kind = PackedLinear if config.packed_weights else QuantLinear
    return kind(in_features, out_features, config.quantization, std)
