"""Low-bit morphisms: fake quantisation with a straight-through gradient. The same numbers are stored by ``packed``.

A weight matrix W becomes scale x code. For int8 and int4 each row has a scale, max|row| / (2^(bits-1) - 1); for ternary
(codes -1, 0, 1) the matrix has one, the mean of |W|. Activations are quantised to 8 bits per position. Sources: Bengio
et al. (2013) for the straight-through estimator; Ma et al., "The Era of 1-bit LLMs" (2024) for absmean scaling.
"""

from enum import StrEnum

import torch

from sheafstate.shapes import Float, Int, Tensor

__all__ = [
    "Quantization",
    "fake_quantize",
    "fake_quantize_activation",
    "fake_quantize_reference",
    "quantize_activation",
    "quantize_weight",
]


class Quantization(StrEnum):
    """How the weights of a linear map are stored."""

    NONE = "none"
    INT8 = "int8"
    INT4 = "int4"
    TERNARY = "ternary"

    @property
    def bits(self) -> int:
        """Bits a weight takes in packed storage (32 when it is not quantised)."""
        return {"none": 32, "int8": 8, "int4": 4, "ternary": 2}[self.value]

    @property
    def per_byte(self) -> int:
        """Codes that share a byte in packed storage."""
        return max(1, 8 // self.bits)

    @property
    def largest_code(self) -> int:
        """Codes run from minus this to this."""
        return 1 if self is Quantization.TERNARY else 2 ** (self.bits - 1) - 1


def quantize_weight(
    weight: Float[Tensor, "*batch out in"], mode: Quantization
) -> tuple[Int[Tensor, "*batch out in"], Float[Tensor, "*batch rows 1"]]:
    """Codes (int8) and scales of a weight matrix; a stack of matrices is quantised matrix by matrix.

    There is a scale for every row, for ternary weights one for the matrix.
    """
    size = weight.detach().abs()
    if mode is Quantization.TERNARY:
        scale = size.mean((-2, -1), keepdim=True)
    else:
        scale = size.amax(-1, keepdim=True) / mode.largest_code
    scale = scale.clamp(min=torch.finfo(weight.dtype).tiny)
    codes = (weight.detach() / scale).round().clamp(-mode.largest_code, mode.largest_code)
    return codes.to(torch.int8), scale


def fake_quantize_reference(weight: Float[Tensor, "out in"], mode: Quantization) -> Float[Tensor, "out in"]:
    """Quantise entry by entry; the twin of :func:`fake_quantize`."""
    result = torch.zeros_like(weight)
    everything = weight.abs().mean()
    for i, row in enumerate(weight):
        scale = everything if mode is Quantization.TERNARY else row.abs().max() / mode.largest_code
        for j, value in enumerate(row):
            code = torch.round(value / scale) if scale > 0 else torch.zeros_like(value)
            result[i, j] = scale * max(-mode.largest_code, min(mode.largest_code, int(code)))
    return result


def fake_quantize(weight: Float[Tensor, "*batch out in"], mode: Quantization) -> Float[Tensor, "*batch out in"]:
    """The quantised weight as a float tensor; its gradient is passed through to ``weight`` unchanged."""
    if mode is Quantization.NONE:
        return weight
    codes, scale = quantize_weight(weight, mode)
    return weight + (codes.to(weight.dtype) * scale - weight).detach()


def quantize_activation(x: Float[Tensor, "*batch d"]) -> tuple[Int[Tensor, "*batch d"], Float[Tensor, "*batch 1"]]:
    """Codes (int8) and scales of activations in 8 bits, one scale a position."""
    x = x.detach()
    scale = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=torch.finfo(x.dtype).tiny)
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale


def fake_quantize_activation(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Activations in 8 bits as floats; the gradient is passed through unchanged."""
    codes, scale = quantize_activation(x)
    return x + (codes.to(x.dtype) * scale - x).detach()
