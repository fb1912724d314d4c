"""The banded softmax against its twin and against dense attention, in values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.ops.banded import (
    band_pairs,
    banded_softmax,
    banded_softmax_reference,
    join_softmax,
    written_slots,
)


def band_inputs(rows: int, length: int, patches: float, written: float, inclusive: bool) -> tuple:
    """Random queries, keys, values, biases, and the band that random patches and licences give."""
    q, k = (torch.randn(rows, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(rows, length, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(rows, length, dtype=torch.float64, requires_grad=True)
    patch = (torch.rand(rows, length) < patches).cumsum(1)
    mask = torch.rand(rows, length) < written
    return q, k, v, bias, patch, mask, written_slots(mask, patch, inclusive)


@given(
    length=st.integers(1, 70),
    degree=st.integers(1, 20),
    block=st.integers(1, 70),
    patches=st.floats(0, 1),
    written=st.floats(0, 1),
    inclusive=st.booleans(),
)
def test_blocks_equal_single_queries(length, degree, block, patches, written, inclusive) -> None:
    q, k, v, bias, _, _, (slots, stop, first) = band_inputs(2, length, patches, written, inclusive)
    along, slope = slots[..., None], torch.randn(2, dtype=torch.float64, requires_grad=True)

    def run(function, **options: int) -> tuple:
        keys, values = k.gather(1, along.expand_as(k)), v.gather(1, along.expand_as(v))
        biases = bias.gather(1, slots)
        output, normaliser, *_ = function(q, keys, values, stop, first, degree, biases, slope=slope, **options)
        some = torch.isfinite(normaliser)
        total = (output * output).sum() + normaliser[some].sum() + 0 * sum(x.sum() for x in (q, k, v, bias, slope))
        return output, normaliser, *torch.autograd.grad(total, (q, k, v, bias, slope))

    for a, b in zip(run(banded_softmax, block=block), run(banded_softmax_reference), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@given(length=st.integers(1, 40), degree=st.integers(1, 9), patches=st.floats(0, 1), written=st.floats(0, 1))
def test_a_band_is_the_last_written_of_the_patch(length, degree, patches, written) -> None:
    *_, patch, mask, (slots, stop, first) = band_inputs(1, length, patches, written, inclusive=False)
    slot, exists = band_pairs(stop, first, degree)
    for t in range(length):
        expected = [p for p in range(t) if mask[0, p] and patch[0, p] == patch[0, t]][-degree:]
        assert slots[0, slot[0, t][exists[0, t]]].tolist() == expected


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 130])
@pytest.mark.parametrize("window", [1, 7, 64])
def test_a_window_equals_attention_with_a_band_mask(length, window) -> None:
    q, k, v = (torch.randn(2, length, 8, dtype=torch.float64) for _ in range(3))
    position = torch.arange(length)
    stop, first = (position + 1).expand(2, -1), torch.zeros(2, length, dtype=torch.long)
    mask = (position[:, None] >= position) & (position[:, None] < position + window)
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
    torch.testing.assert_close(banded_softmax(q, k, v, stop, first, window)[0], dense, rtol=0, atol=1e-12)


def test_rotary_depends_on_offsets_alone() -> None:
    q, k, v = (torch.randn(1, 100, 8, dtype=torch.float64) for _ in range(3))
    stop, first = torch.arange(1, 101)[None], torch.zeros(1, 100, dtype=torch.long)
    fast = banded_softmax(q, k, v, stop, first, 9, theta=100.0, block=16)
    slow = banded_softmax_reference(q, k, v, stop, first, 9, theta=100.0)
    torch.testing.assert_close(fast[0], slow[0], rtol=0, atol=1e-12)


def test_weights_belong_to_their_slots() -> None:
    q, k, v, bias, _, _, (_, stop, first) = band_inputs(2, 50, 0.1, 1.0, inclusive=True)
    output, _, weights = banded_softmax(q, k, v, stop, first, 6, bias, return_weights=True)
    slot, exists = band_pairs(stop, first, 6)
    read = torch.where(exists[..., None], v[torch.arange(2)[:, None, None], slot.clamp(min=0)], 0.0)
    torch.testing.assert_close((weights[..., None] * read).sum(2), output, rtol=0, atol=1e-12)
    torch.testing.assert_close((weights * exists).sum(-1), torch.ones(2, 50, dtype=torch.float64))


@given(st.integers(1, 6), st.integers(0, 6))
def test_joined_softmaxes_equal_one(a, b) -> None:
    logits = torch.randn(1, 1, a + b, dtype=torch.float64)
    values, null = torch.randn(a + b, 3, dtype=torch.float64), torch.randn(1, 1, dtype=torch.float64)
    parts = []
    for chosen in (slice(0, a), slice(a, a + b)):
        some = logits[..., chosen].shape[-1] > 0
        output = logits[..., chosen].softmax(-1) @ values[chosen] if some else torch.zeros(1, 1, 3, dtype=torch.float64)
        parts.append((output, logits[..., chosen].logsumexp(-1) if some else torch.full((1, 1), -torch.inf).double()))
    whole = torch.cat([logits, null[..., None]], -1).softmax(-1)
    output, mass, _ = join_softmax(parts, null)
    torch.testing.assert_close(output, whole[..., :-1] @ values)
    torch.testing.assert_close(mass, 1 - whole[..., -1])


def test_nothing_to_read_is_zero_and_finite() -> None:
    empty = torch.zeros(1, 2, 3), torch.full((1, 2), -torch.inf)
    output, mass, _ = join_softmax([empty, empty])
    assert output.abs().max() == 0
    assert torch.isfinite(mass).all()
