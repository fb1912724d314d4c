"""Sliding-window attention for reading alone, by PyTorch's fused attention over blocks of queries.

Query i stands in slot before + i and reads the slots max(first_i, before + i - window + 1) to before + i, rotary by
offset: what :func:`~sheafstate.ops.banded.banded_softmax` computes where every position is written, in half the time:
the logits are never stored, and a key is turned once, by its slot. With a backward pass nothing would be gained, and
there are no weights.
"""

import torch
from torch.nn import functional

from sheafstate.ops import made_once, without_autocast
from sheafstate.ops.banded import rotary_angles, rotate, rotation_tables
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["windowed_attention", "windowed_attention_reference"]

BLOCK = 32
"""Queries a block."""
TABLE = 1024
"""Rotations are tabulated for multiples of so many slots."""


def windowed_attention_reference(
    q: Float[Tensor, "B n H P"],
    k: Float[Tensor, "B m H P"],
    v: Float[Tensor, "B m H P"],
    first: Int[Tensor, "B n"],
    window: int,
    theta: float,
) -> Float[Tensor, "B n H P"]:
    """Read query by query; the twin of :func:`windowed_attention`."""
    output, before = torch.empty_like(q), k.shape[1] - q.shape[1]
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            end = before + i + 1
            begin = max(int(first[b, i]), end - window)
            angles = rotary_angles(end - begin, q.shape[-1], theta, q)[:, None]
            keys, query = rotate(k[b, begin:end], angles), rotate(q[b, i : i + 1], angles[-1:])
            weights = (query * keys).sum(-1).softmax(0)
            output[b, i] = (weights[..., None] * v[b, begin:end]).sum(0)
    return output


def windowed_attention(
    q: Float[Tensor, "B n H P"],
    k: Float[Tensor, "B m H P"],
    v: Float[Tensor, "B m H P"],
    first: Int[Tensor, "B n"],
    window: int,
    theta: float,
    block: int = BLOCK,
) -> Float[Tensor, "B n H P"]:
    """Attention to the last ``window`` positions, the query's own included.

    Args:
        q: queries, already scaled.
        k, v: keys (unrotated) and values; the last n are those of the queries' positions, at most ``window`` before.
        first: the first slot that each query may read, at most its own.
        window: slots that a query reads at most.
        theta: base of the rotary embeddings. Angles are slots of this call times frequencies, in float64.
        block: queries a block.
    """
    length, before = q.shape[1], k.shape[1] - q.shape[1]
    block = min(block, length)
    blocks = -(-length // block)
    span, missing, front = window + block, blocks * block - length, window - before
    with without_autocast(q):
        size, kind = -(-k.shape[1] // TABLE) * TABLE, (q.dtype, q.device)
        cos, sin = (table[: k.shape[1]] for table in _turns(size, q.shape[-1], theta, *kind))
        q, k = _turn(q, cos[before:], sin[before:]), _turn(k, cos, sin)
        queries = functional.pad(q, (0, 0, 0, 0, 0, missing)).unflatten(1, (blocks, block)).transpose(2, 3)
        # a block's slice begins ``window`` slots before its first query
        keys, values = (
            functional.pad(t, (0, 0, 0, 0, front, missing)).unfold(1, span, block).transpose(-1, -2) for t in (k, v)
        )
        stop = torch.arange(before + 1, before + 1 + blocks * block, device=q.device)
        lower = torch.maximum(functional.pad(first, (0, missing)), stop - window)
        slot = torch.arange(blocks, device=q.device)[:, None] * block - front + torch.arange(span, device=q.device)
        stop, lower = stop.unflatten(0, (blocks, block)), lower.unflatten(1, (blocks, block))
        readable = (slot[:, None] >= lower[..., None]) & (slot[:, None] < stop[..., None])
        output = functional.scaled_dot_product_attention(
            queries.flatten(0, 1),
            keys.flatten(0, 1),
            values.flatten(0, 1),
            attn_mask=readable.flatten(0, 1)[:, None],
            scale=1.0,
        )
    return output.unflatten(0, (-1, blocks)).transpose(2, 3).flatten(1, 2)[:, :length]


@made_once
def _turns(
    length: int, width: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "n one width"], Float[Tensor, "n one width"]]:
    """Cosines, and sines with the sign of their half."""
    angles = rotary_angles(length, width, theta, torch.zeros((), dtype=torch.float64))[:, None]
    cos, sin = (table.to(device, dtype) for table in rotation_tables(angles))
    return cos, sin


def _turn(x: Float[Tensor, "B n H P"], cos: Tensor, sin: Tensor) -> Float[Tensor, "B n H P"]:
    """Rotary embedding, half-split."""
    turned, half = x * cos, x.shape[-1] // 2
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half])
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:])
    return turned
