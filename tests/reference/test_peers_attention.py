"""Windowed attention and PyTorch's own attention under a band mask: values and gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from sheafstate import SheafStateConfig
from sheafstate.nn.records import Rows, Site
from sheafstate.nn.transport_local import LocalReader
from sheafstate.ops.banded import banded_softmax, rotary_angles, rotate
from sheafstate.rows import arrange
from tests.variants import examples

HEADS, WIDTH = 3, 4


def band(documents: torch.Tensor, window: int) -> torch.Tensor:
    """(B, T, T): which positions are read; the last ``window`` of the own document."""
    position = torch.arange(documents.shape[1])
    near = (position[:, None] >= position) & (position[:, None] < position + window)
    return near & (documents[:, :, None] == documents[:, None, :])


@examples(20)
@given(
    length=st.integers(1, 200),
    window=st.integers(1, 220),
    block=st.sampled_from([1, 16, 64]),
    biased=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_banded_softmax_is_masked_attention(length, window, block, biased, seed) -> None:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(HEADS, length, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = torch.randn(HEADS, length, dtype=torch.float64, requires_grad=True)
    begins = torch.rand(length) < 0.05
    documents = begins.cumsum(0)[None]
    position = torch.arange(length)
    first = torch.where(begins, position, 0).cummax(0).values.expand(HEADS, -1)
    stop = (position + 1).expand(HEADS, -1)
    mine, _, _ = banded_softmax(q, k, v, stop, first, window, bias if biased else None, block=block)
    mask = torch.zeros(length, length, dtype=torch.float64).masked_fill(~band(documents, window)[0], -torch.inf)
    theirs = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask + bias[:, None] if biased else mask, scale=1.0
    )
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    leaves = [q, k, v, bias] if biased else [q, k, v]
    weight = torch.randn_like(mine)
    for a, b in zip(*(torch.autograd.grad((y * weight).sum(), leaves) for y in (mine, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@examples(20)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    window=st.integers(1, 70),
    padding=st.integers(0, 20),
    seed=st.integers(0, 999),
)
def test_a_window_of_heads_is_masked_attention_with_rotary_positions(lengths, window, padding, seed) -> None:
    """Rotary embeddings by offset in the band are those by position; a row of one document, one packed, padding."""
    torch.manual_seed(seed)
    config = SheafStateConfig(heads={"local": HEADS}, d_head=WIDTH, window=window, site="window")
    total = sum(lengths)
    x = torch.randn(2, total + padding, 3 * HEADS * WIDTH, dtype=torch.float64, requires_grad=True)
    packed = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    documents = functional.pad(torch.stack([torch.zeros_like(packed), packed]), (0, padding))
    mask = (torch.arange(total + padding) < total).expand(2, -1)
    rows: Rows = arrange((2, total + padding), x.device, mask, documents, None, None, 0).rows
    section, _ = LocalReader(config, HEADS)(x, Site(rows), None, False, False)
    mine = section.values[:, :total]
    q, k, v = x[:, :total].unflatten(-1, (3 * HEADS, WIDTH)).transpose(1, 2).chunk(3, 1)
    angles = rotary_angles(total, WIDTH, config.rope_theta, x)
    theirs = functional.scaled_dot_product_attention(
        rotate(q, angles), rotate(k, angles), v, attn_mask=band(documents[:, :total], window)[:, None]
    ).transpose(1, 2)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    weight = torch.randn_like(mine)
    a, b = (torch.autograd.grad((y * weight).sum(), x)[0] for y in (mine, theirs))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
