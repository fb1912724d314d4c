"""Low-bit morphisms as they are stored and used: several codes a byte, multiplied as whole numbers.

A byte of a packed matrix holds F = 8 / bits codes, one of each of F planes of columns: byte j of a row of n codes holds
columns j, j + ceil(n / F), j + 2 ceil(n / F), ... The lower fields are raised by the largest code and so unsigned, the
highest is in two's complement. Hence field f of a whole matrix is ``packed & mask_f``, which is an int8 matrix of
2^(bits f) times the field's numbers: one pass over the bytes makes an operand of an int8 product, and the sum is exact.
"""

import functools

import torch
from torch.nn import functional

from sheafstate.ops.quantize import Quantization, quantize_activation
from sheafstate.shapes import Float, Int, Int8, Tensor

__all__ = [
    "integer_product",
    "integer_product_reference",
    "pack_codes",
    "packed_linear",
    "packed_linear_reference",
    "packed_width",
    "unpack_codes",
    "unpack_weight",
]

EXACT_COLUMNS = 1024
"""Products of two int8 numbers that float32 sums without rounding: 2^24 / 2^14."""


def packed_width(n: int, mode: Quantization) -> int:
    """Bytes that a row of ``n`` codes takes."""
    return -(-n // mode.per_byte)


def _masks(mode: Quantization) -> list[int]:
    """The bits of each field, as an int8 number."""
    lower = [(2**mode.bits - 1) << (mode.bits * field) for field in range(mode.per_byte - 1)]
    return [*lower, -(2 ** (8 - mode.bits))]


def pack_codes(codes: Int[Tensor, "*batch n"], mode: Quantization) -> Int8[Tensor, "*batch width"]:
    """Codes in as few bytes as the mode allows; a last byte that is not full is filled up with zeros."""
    width = packed_width(codes.shape[-1], mode)
    wide = functional.pad(codes.to(torch.int16), (0, width * mode.per_byte - codes.shape[-1]))
    planes = wide.unflatten(-1, (mode.per_byte, width))
    packed = planes[..., -1, :] << (8 - mode.bits)
    for field in range(mode.per_byte - 1):
        packed = packed + ((planes[..., field, :] + mode.largest_code) << (mode.bits * field))
    return packed.to(torch.int8)


def unpack_codes(packed: Int8[Tensor, "*batch width"], mode: Quantization, n: int) -> Int8[Tensor, "*batch n"]:
    """The inverse of :func:`pack_codes`; ``n`` is the number of codes in the last axis."""
    planes = [(packed & mask) >> (mode.bits * field) for field, mask in enumerate(_masks(mode))]
    lower = [plane - mode.largest_code for plane in planes[:-1]]
    return torch.cat([*lower, planes[-1]], -1)[..., :n]


def unpack_weight(
    packed: Int8[Tensor, "out width"], scale: Float[Tensor, "rows 1"], mode: Quantization, n: int
) -> Float[Tensor, "out n"]:
    """The weight that is packed, as floats; ``n`` is its number of columns."""
    return unpack_codes(packed, mode, n).to(scale.dtype) * scale


def integer_product_reference(a: Int8[Tensor, "M n"], b: Int8[Tensor, "out n"]) -> Int[Tensor, "M out"]:
    """a b^T in whole numbers, summed in float32 where that cannot round; the twin of :func:`integer_product`."""
    runs = zip(a.split(EXACT_COLUMNS, 1), b.split(EXACT_COLUMNS, 1), strict=True)
    parts = [(left.float() @ right.float().t()).to(torch.int32) for left, right in runs]
    return torch.stack(parts).sum(0, dtype=torch.int32)


@torch.compiler.assume_constant_result
@functools.cache
def _has_exact_product() -> bool:
    """Whether this machine's int8 product is exact; some processors' instructions saturate in between."""
    most = torch.full((1, 64), 127, dtype=torch.int8, device="cpu")
    least = torch.full((64, 2), -128, dtype=torch.int8, device="cpu")
    return bool((torch._int_mm(most, least) == -64 * 127 * 128).all())


def integer_product(a: Int8[Tensor, "M n"], b: Int8[Tensor, "out n"]) -> Int[Tensor, "M out"]:
    """a b^T in whole numbers, by the processor's int8 instructions where these are exact."""
    # torch 2.13 returns wrong sums where there is one column
    if a.device.type != "cpu" or not a.shape[0] or a.shape[1] == 1 or not _has_exact_product():
        return integer_product_reference(a, b)
    return torch._int_mm(a, b.t())


def packed_linear_reference(
    x: Float[Tensor, "*batch in"],
    packed: Int8[Tensor, "out width"],
    scale: Float[Tensor, "rows 1"],
    mode: Quantization,
) -> Float[Tensor, "*batch out"]:
    """x W^T with x in 8 bits and W unpacked to floats; the twin of :func:`packed_linear`."""
    codes, step = quantize_activation(x)
    weight = unpack_weight(packed, scale, mode, x.shape[-1])
    return functional.linear((codes * step).to(scale.dtype), weight).to(x.dtype)


def packed_linear(
    x: Float[Tensor, "*batch in"],
    packed: Int8[Tensor, "out width"],
    scale: Float[Tensor, "rows 1"],
    mode: Quantization,
) -> Float[Tensor, "*batch out"]:
    """x W^T with x in 8 bits and W as it is stored: a pass over the bytes and an int8 product for every field.

    Args:
        x: activations.
        packed: what :func:`pack_codes` made of the codes of W.
        scale: scales of the rows of W, or one for all.
        mode: how W is stored; not ``none``.
    """
    codes, step = quantize_activation(x)
    flat, fields = codes.flatten(0, -2), mode.per_byte
    if fields == 1:
        total = integer_product(flat, packed)
    else:
        width = packed.shape[-1]
        padded = functional.pad(flat, (0, width * fields - flat.shape[-1]))
        planes = padded.unflatten(-1, (fields, width)).transpose(0, 1).contiguous()
        masks = _masks(mode)
        parts = [integer_product(planes[f], packed & masks[f]) >> (mode.bits * f) for f in range(fields)]
        raised = planes[:-1].sum((0, 2), dtype=torch.int32)[:, None] * mode.largest_code
        total = functools.reduce(torch.add, parts) - raised
    wide = torch.promote_types(x.dtype, scale.dtype)
    y = total.to(wide) * step.flatten(0, -2) * scale.t()
    return y.to(x.dtype).unflatten(0, x.shape[:-1])
