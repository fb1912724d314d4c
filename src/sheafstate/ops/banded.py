"""The banded softmax along an ordering: a query reads the last few written positions of its patch.

Written positions are laid out in the ordering. Query i, in the same ordering, reads the keys j with

    max(first_i, stop_i - degree) <= j < stop_i,       o_i = sum_j softmax_j(q_i . k_j + bias_j - s log(stop_i - j)) v_j

with a slope s that is 0 unless ages count.
``stop`` grows by at most one from a query to the next, so a block of Q consecutive queries needs one contiguous slice
of degree + Q - 1 keys: time and memory are linear, and no gather repeats a key ``degree`` times. Softmaxes over several
bands (and a null logit) are joined afterwards by their log-normalisers. Source: DESIGN §2.
"""

import torch

from sheafstate.ops import made_constant, without_autocast
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = [
    "band_pairs",
    "banded_softmax",
    "banded_softmax_reference",
    "inverse_permutation",
    "join_softmax",
    "query_rotations",
    "rotary_angles",
    "rotate",
    "rotation_tables",
    "run_starts",
    "take_along",
    "written_slots",
]

BLOCK = 32
"""Queries a block."""


def rotary_angles(length: int, width: int, theta: float, like: Tensor, begin: int = 0) -> Float[Tensor, "n half"]:
    """Angles of rotary embeddings, position times theta^(-2i/width), in float32 or wider (half-split layout)."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    frequencies = theta ** (-torch.arange(0, width, 2, device=like.device, dtype=dtype) / width)
    return torch.arange(begin, begin + length, device=like.device, dtype=dtype)[:, None] * frequencies


def rotate(x: Float[Tensor, "*batch n width"], angles: Float[Tensor, "*other half"]) -> Float[Tensor, "*batch n width"]:
    """Rotate the pairs (x_i, x_{i + width/2}) by the angles of their position."""
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rotation_tables(angles: Float[Tensor, "*n half"]) -> tuple[Float[Tensor, "*n width"], Float[Tensor, "*n width"]]:
    """What turns x as :func:`rotate` does: x times the first, and x with its halves exchanged times the second."""
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)


@made_constant
def query_rotations(
    window: int, width: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "n width"], Float[Tensor, "n width"]]:
    """Turns one query into those that meet the unrotated keys of a window, oldest first, and scales by 1/sqrt(width).

    q R_j k = (R_j^T q) k, with R_j the rotation by the offset of key j to the query: the query times the first table,
    and with its halves exchanged times the second.
    """
    wide = torch.zeros(1, dtype=torch.promote_types(dtype, torch.float32))
    age = rotary_angles(window, width, theta, wide).flip(0)
    cos, sin = (table * width**-0.5 for table in rotation_tables(age))
    return cos.to(device, dtype), sin.to(device, dtype)


def inverse_permutation(order: Int[Tensor, "*batch n"]) -> Int[Tensor, "*batch n"]:
    """Where each position stands in an ordering."""
    return torch.empty_like(order).scatter_(
        -1, order, torch.arange(order.shape[-1], device=order.device).expand_as(order)
    )


def run_starts(values: Int[Tensor, "*batch n"]) -> Bool[Tensor, "*batch n"]:
    """Where a run of equal values begins along the last axis."""
    return torch.nn.functional.pad(values[..., 1:] != values[..., :-1], (1, 0), value=True)


def written_slots(
    written: Bool[Tensor, "R n"], patch: Int[Tensor, "R n"], inclusive: bool
) -> tuple[Int[Tensor, "R n"], Int[Tensor, "R n"], Int[Tensor, "R n"]]:
    """Lay the written positions of an ordering out in a row without holes.

    Args:
        written: which positions are written, in the ordering.
        patch: patch of each position, in the ordering; equal values are neighbours.
        inclusive: whether a position reads itself (p <= t) or only what came before (p < t).

    Returns:
        slots: the written positions in order, the others behind them.
        stop: how many slots are at or before (before) each position.
        first: the first slot of each position's patch.
    """
    slots = torch.argsort((~written).to(torch.int8), dim=-1, stable=True)
    up_to = written.cumsum(-1)
    before = up_to - written.long()
    # ``before`` never falls along the ordering, so the last patch's opening value is the largest so far.
    first = torch.where(run_starts(patch), before, 0).cummax(-1).values
    return slots, up_to if inclusive else before, first


def banded_softmax_reference(
    q: Float[Tensor, "R n d"],
    k: Float[Tensor, "R m d"],
    v: Float[Tensor, "R m P"],
    stop: Int[Tensor, "R n"],
    first: Int[Tensor, "R n"],
    degree: int,
    bias: Float[Tensor, "R m"] | None = None,
    theta: float | None = None,
    slope: Float[Tensor, " R"] | None = None,
) -> tuple[Float[Tensor, "R n P"], Float[Tensor, "R n"]]:
    """Read query by query; the twin of :func:`banded_softmax`."""
    rows = []
    for r in range(q.shape[0]):
        for i in range(q.shape[1]):
            begin, end = max(int(first[r, i]), int(stop[r, i]) - degree), int(stop[r, i])
            query, keys = q[r, i : i + 1], k[r, begin:end]
            if end <= begin:
                rows.append((v.new_zeros(v.shape[-1]), v.new_full((), -torch.inf)))
                continue
            if theta is not None:
                angles = rotary_angles(end - begin, q.shape[-1], theta, q)
                query, keys = rotate(query, angles[-1:]), rotate(keys, angles)
            logits = (keys @ query[0]) + (0 if bias is None else bias[r, begin:end])
            if slope is not None:
                logits = logits - slope[r] * torch.arange(end - begin, 0, -1, device=q.device).to(logits.dtype).log()
            rows.append((logits.softmax(-1) @ v[r, begin:end], logits.logsumexp(-1)))
    outputs, normalisers = zip(*rows, strict=True)
    return torch.stack(outputs).unflatten(0, q.shape[:2]), torch.stack(normalisers).unflatten(0, q.shape[:2])


def banded_softmax(
    q: Float[Tensor, "R n d"],
    k: Float[Tensor, "R m d"],
    v: Float[Tensor, "R m P"],
    stop: Int[Tensor, "S n"],
    first: Int[Tensor, "S n"],
    degree: int,
    bias: Float[Tensor, "R m"] | None = None,
    theta: float | None = None,
    slope: Float[Tensor, " R"] | None = None,
    block: int = BLOCK,
    return_weights: bool = False,
) -> tuple[Float[Tensor, "R n P"], Float[Tensor, "R n"], Float[Tensor, "R n r"] | None]:
    """Softmax over a band, block by block.

    Args:
        q: queries along the ordering, already scaled.
        k, v: keys and values of the slots, along the same ordering.
        stop, first: the band of every query (:func:`written_slots`); ``stop`` must grow by at most one a query. Where
            R / S rows that follow one another share their bands, these are given once.
        degree: how many slots a query reads at most.
        bias: log-weights of the slots.
        theta: base of rotary embeddings by offset inside the band, or ``None``. Needs every position to be written, so
            that offsets of slots are offsets of positions; angles stay below (degree + block), however long the text.
        slope: how much less the older slots of a band count: the newest is 1 old, the one before it 2.
        block: queries a block.
        return_weights: whether the weights are wanted.

    Returns:
        outputs: zero where the band is empty; in the dtype of ``v``, in float32 or wider inside.
        normalisers: their logarithms, minus infinity where the band is empty; in float32 or wider.
        weights: (R, n, degree), entry c is that of slot ``stop - degree + c``; ``None`` unless they are wanted.
    """
    length, shared = q.shape[1], q.shape[0] // stop.shape[0]
    block = min(block, length)
    blocks = -(-length // block)
    span = -(-(degree + block - 1) // 8) * 8  # products of matrices are faster where rows are aligned
    queries = _blocks(q, block, blocks)
    stops, firsts = _blocks(stop, block, blocks), _blocks(first, block, blocks)
    base = stops[..., :1] - degree
    slot = base + torch.arange(span, device=q.device)  # S blocks span
    lower = torch.maximum(firsts, stops - degree)
    unread = (slot[..., None, :] < lower[..., None]) | (slot[..., None, :] >= stops[..., None])
    index = slot.clamp(0, k.shape[1] - 1).repeat_interleave(shared, 0)
    keys, values = take_along(k, index), take_along(v, index)
    if theta is not None:
        angles = rotary_angles(span, q.shape[-1], theta, q)
        queries, keys = rotate(queries, angles[degree - 1 : degree - 1 + block]), rotate(keys, angles)
    with without_autocast(q):
        dtype = torch.promote_types(q.dtype, torch.float32)
        logits = (queries @ keys.transpose(-1, -2)).to(dtype)
        if bias is not None:
            logits = logits + take_along(bias[..., None], index)[..., 0][..., None, :]
        if slope is not None:
            ages = (stops[..., None] - slot[..., None, :]).clamp(min=1).to(dtype).log()
            logits = torch.addcmul(
                logits, ages.repeat_interleave(shared, 0), slope.to(dtype)[:, None, None, None], value=-1
            )
        # added, a mask costs no pass over the gradient
        mask = torch.where(unread, -torch.inf, logits.new_zeros(()))[:, None]
        logits = logits.unflatten(0, (-1, shared)).add_(mask).flatten(0, 1)
        largest = logits.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(dtype).min)
        weights = logits.sub_(largest).exp_()
        total = weights.sum(-1, keepdim=True)
        some = total > 0
        safe = torch.where(some, total, 1.0)
        outputs = (weights.to(v.dtype) @ values) / safe.to(v.dtype)
        normaliser = torch.where(some, safe.log() + largest, -torch.inf)[..., 0]
    outputs = outputs.flatten(1, 2)[:, :length]
    normaliser = normaliser.flatten(1, 2)[:, :length]
    if not return_weights:
        return outputs, normaliser, None
    column = (stops - base)[..., None] - degree + torch.arange(degree, device=q.device)
    column = column.repeat_interleave(shared, 0)
    band = (weights / safe).gather(-1, column.clamp(0, span - 1))
    return outputs, normaliser, band.flatten(1, 2)[:, :length]


def _blocks(tensor: Tensor, block: int, blocks: int) -> Tensor:
    """Cut axis 1 into blocks; the last block repeats the last position, so that bands stay in order."""
    missing = block * blocks - tensor.shape[1]
    if missing:
        tensor = torch.cat([tensor, tensor[:, -1:].expand(-1, missing, *tensor.shape[2:])], 1)
    return tensor.unflatten(1, (blocks, block))


def take_along(values: Tensor, index: Tensor) -> Tensor:
    """Positions of a (R, m, ...) tensor, chosen row by row with a (R, *n) index: (R, *n, ...).

    On a flattened tensor index_select is the cheapest of all gathers, in its backward pass too. Inductor, up to torch
    2.13 at least, fails on the arithmetic of flattened indices, so that it gets an index an axis.
    """
    row = torch.arange(index.shape[0], device=index.device).reshape(-1, *(1,) * (index.dim() - 1))
    if torch.compiler.is_compiling():
        return values[row, index]
    return values.flatten(0, 1).index_select(0, (index + row * values.shape[1]).flatten()).unflatten(0, index.shape)


def join_softmax(
    parts: list[tuple[Float[Tensor, "R n P"], Float[Tensor, "R n"]]], null: Float[Tensor, "R n"] | None = None
) -> tuple[Float[Tensor, "R n P"], Float[Tensor, "R n"], list[Float[Tensor, "R n"]]]:
    """Join softmaxes over disjoint keys, and a null key of value zero, into the one softmax over all of them.

    Args:
        parts: outputs and log-normalisers, as :func:`banded_softmax` returns them.
        null: the null key's logit, or ``None``. Where there is nothing at all to read, the output is zero.

    Returns:
        the joint output, the mass 1 - (weight on null), and the share of each part.
    """
    normalisers = torch.stack([normaliser for _, normaliser in parts] + ([] if null is None else [null]))
    nothing = (normalisers == -torch.inf).all(0)
    shares = normalisers.masked_fill(nothing, 0.0).softmax(0)
    output = sum(share[..., None].to(part.dtype) * part for (part, _), share in zip(parts, shares, strict=False))
    mass = shares[: len(parts)].sum(0) if null is not None else torch.ones_like(shares[0])
    return output, mass, list(shares[: len(parts)])


def band_pairs(
    stop: Int[Tensor, "R n"], first: Int[Tensor, "R n"], degree: int
) -> tuple[Int[Tensor, "R n r"], Bool[Tensor, "R n r"]]:
    """The slots that each query reads, and which of them exist: the edges of a band, in the layout of its weights."""
    slot = stop[..., None] - degree + torch.arange(degree, device=stop.device)
    return slot, (slot >= first[..., None]) & (slot >= 0)
