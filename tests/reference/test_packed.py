"""Packed matrices: the codes come back, products are exact, maps equal those of the unpacked weights."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.ops import packed
from sheafstate.ops.packed import (
    integer_product,
    integer_product_reference,
    pack_codes,
    packed_linear,
    packed_linear_reference,
    packed_width,
    unpack_codes,
)
from sheafstate.ops.quantize import Quantization, fake_quantize, fake_quantize_activation, quantize_weight

LOW_BIT = [mode for mode in Quantization if mode is not Quantization.NONE]
modes = pytest.mark.parametrize("mode", LOW_BIT)


@modes
@given(rows=st.integers(1, 3), columns=st.integers(1, 17))
def test_packed_codes_come_back(mode, rows, columns) -> None:
    codes, _ = quantize_weight(torch.randn(rows, columns), mode)
    bytes_ = pack_codes(codes, mode)
    assert bytes_.dtype == torch.int8
    assert bytes_.shape[-1] == packed_width(columns, mode) == -(-columns * mode.bits // 8)
    assert torch.equal(unpack_codes(bytes_, mode, columns), codes)


@modes
def test_every_code_survives_in_every_place(mode) -> None:
    codes = torch.arange(-mode.largest_code, mode.largest_code + 1).to(torch.int8)
    rows = torch.stack([codes.roll(shift) for shift in range(len(codes))])
    assert torch.equal(unpack_codes(pack_codes(rows, mode), mode, rows.shape[1]), rows)


@given(rows=st.integers(0, 5), out=st.integers(1, 9), columns=st.integers(1, 70) | st.just(2500))
def test_products_of_whole_numbers_are_exact(rows, out, columns) -> None:
    a = torch.randint(-127, 128, (rows, columns)).to(torch.int8)
    b = torch.randint(-128, 128, (out, columns)).to(torch.int8)
    exact = a.long() @ b.long().t()
    assert torch.equal(integer_product(a, b).long(), exact)
    assert torch.equal(integer_product_reference(a, b).long(), exact)


@pytest.mark.parametrize("columns", [64, 1024, 5000])
def test_the_largest_products_do_not_saturate(columns) -> None:
    a, b = torch.full((2, columns), 127).to(torch.int8), torch.full((3, columns), -128).to(torch.int8)
    for product in (integer_product, integer_product_reference):
        assert torch.equal(product(a, b), torch.full((2, 3), -127 * 128 * columns, dtype=torch.int32))


def test_a_machine_whose_product_saturates_is_not_trusted(monkeypatch) -> None:
    monkeypatch.setattr(packed, "_has_exact_product", lambda: False)
    monkeypatch.setattr(torch, "_int_mm", lambda *_: pytest.fail("the machine's product was used"))
    assert integer_product(torch.ones(2, 3).to(torch.int8), torch.ones(4, 3).to(torch.int8)).tolist() == [[3] * 4] * 2


@modes
@given(
    rows=st.integers(0, 4),
    out=st.integers(1, 9),
    columns=st.integers(1, 70),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    scale=st.floats(1e-4, 1e4),
)
def test_a_packed_map_equals_that_of_the_quantised_weight(mode, rows, out, columns, dtype, scale) -> None:
    x = (torch.randn(rows, columns, dtype=torch.float64) * scale).to(dtype)
    weight = torch.randn(out, columns, dtype=torch.promote_types(dtype, torch.float32))
    codes, scales = quantize_weight(weight, mode)
    stored = pack_codes(codes, mode)
    fast, slow = packed_linear(x, stored, scales, mode), packed_linear_reference(x, stored, scales, mode)
    fake = torch.nn.functional.linear(fake_quantize_activation(x).to(weight.dtype), fake_quantize(weight, mode))
    error = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2**-7}[dtype]
    size = float(x.abs().max() * weight.abs().max() * columns) if rows else 1.0
    assert fast.dtype == slow.dtype == dtype
    torch.testing.assert_close(fast, slow, rtol=error, atol=error * size)
    torch.testing.assert_close(fast.to(fake.dtype), fake, rtol=error, atol=error * size)
