"""Low-bit morphisms: fake quantisation with a straight-through gradient, and the packed form of the same numbers.

A weight matrix W becomes scale x code. Scales are per row; for int8 and int4 they are max|row| / (2^(bits-1) - 1), for
ternary (codes -1, 0, 1) the mean of |W| over the whole matrix, kept per row so that all formats are stored alike.
Activations are quantised to 8 bits per position. Sources: Bengio et al. (2013) for the straight-through estimator;
Ma et al., "The Era of 1-bit LLMs" (2024) for absmean scaling.
"""

from enum import StrEnum

import torch

from sheafstate.shapes import Float, Int, Tensor, UInt8

__all__ = [
    "Quantization",
    "fake_quantize",
    "fake_quantize_activation",
    "fake_quantize_reference",
    "pack_codes",
    "quantize_weight",
    "unpack_codes",
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
    def largest_code(self) -> int:
        """Codes run from minus this to this."""
        return 1 if self is Quantization.TERNARY else 2 ** (self.bits - 1) - 1


def quantize_weight(
    weight: Float[Tensor, "*batch out in"], mode: Quantization
) -> tuple[Int[Tensor, "*batch out in"], Float[Tensor, "*batch out 1"]]:
    """Codes (int8) and scales of a weight matrix; a stack of matrices is quantised matrix by matrix."""
    size = weight.detach().abs()
    if mode is Quantization.TERNARY:
        scale = size.mean((-2, -1), keepdim=True).expand(*size.shape[:-1], 1)
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


def fake_quantize_activation(x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
    """Activations in 8 bits, one scale a position; the gradient is passed through unchanged."""
    scale = (x.detach().abs().amax(-1, keepdim=True) / 127).clamp(min=torch.finfo(x.dtype).tiny)
    return x + ((x.detach() / scale).round().clamp(-127, 127) * scale - x).detach()


def pack_codes(codes: Int[Tensor, "*batch n"], mode: Quantization) -> UInt8[Tensor, "*batch packed"]:
    """Codes in as few bytes as the mode allows: 1, 2 or 4 codes a byte, the last byte filled up with zeros."""
    per_byte = 8 // mode.bits
    raised = (codes.to(torch.int16) + mode.largest_code).to(torch.uint8)
    missing = -raised.shape[-1] % per_byte
    raised = torch.nn.functional.pad(raised, (0, missing)).unflatten(-1, (-1, per_byte))
    shifts = torch.arange(per_byte, device=codes.device, dtype=torch.uint8) * mode.bits
    return (raised << shifts).sum(-1, dtype=torch.uint8)


def unpack_codes(packed: UInt8[Tensor, "*batch packed"], mode: Quantization, n: int) -> Int[Tensor, "*batch n"]:
    """The inverse of :func:`pack_codes`; ``n`` is the number of codes in the last axis."""
    per_byte = 8 // mode.bits
    shifts = torch.arange(per_byte, device=packed.device, dtype=torch.uint8) * mode.bits
    raised = (packed[..., None] >> shifts) & (2**mode.bits - 1)
    return (raised.flatten(-2)[..., :n].to(torch.int16) - mode.largest_code).to(torch.int8)
