"""The segmented selective scan along an ordering: scalar decay per head, state-space duality form.

For every position t of a patch, with S = 0 where a patch starts,

    S_t = a_t S_{t-1} + dt_t B_t x_t^T,        y_t = C_t^T S_t.

Source: the chunked algorithm of Dao and Gu, "Transformers are SSMs" (2024), section 6, with patch starts as boolean
masks instead of large decays.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional

from sheafstate.ops import without_autocast
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = ["causal_convolution", "causal_convolution_reference", "selective_scan", "selective_scan_reference"]

CHUNK = 32
"""Positions a chunk: its decay matrix is CHUNK x CHUNK per head, the pass over chunks is a loop."""

GROUP = 1024
"""Positions that the convolution takes at a time."""


def selective_scan_reference(
    x: Float[Tensor, "B T H P"],
    dt: Float[Tensor, "B T H"],
    log_decay: Float[Tensor, "B T H"],
    B: Float[Tensor, "B T N"],
    C: Float[Tensor, "B T N"],
    start: Bool[Tensor, "B T"],
    state: Float[Tensor, "B H N P"],
) -> tuple[Float[Tensor, "B T H P"], Float[Tensor, "B H N P"]]:
    """Run the recurrence position by position; the twin of :func:`selective_scan`."""
    outputs = []
    for t in range(x.shape[1]):
        kept = torch.where(start[:, t, None, None, None], torch.zeros_like(state), state)
        written = torch.einsum("bh,bn,bhp->bhnp", dt[:, t], B[:, t], x[:, t])
        state = log_decay[:, t, :, None, None].exp() * kept + written
        outputs.append(torch.einsum("bn,bhnp->bhp", C[:, t], state))
    return torch.stack(outputs, 1), state


def selective_scan(
    x: Float[Tensor, "B T H P"],
    dt: Float[Tensor, "B T H"],
    log_decay: Float[Tensor, "B T H"],
    B: Float[Tensor, "B T N"],
    C: Float[Tensor, "B T N"],
    start: Bool[Tensor, "B T"],
    state: Float[Tensor, "B H N P"] | None = None,
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, "B T H P"], Float[Tensor, "B H N P"]]:
    """Scan in chunks: matrices inside a chunk, a loop over chunks; time and memory linear in T.

    Args:
        x: what is written, per head.
        dt: step sizes, not negative. A position with ``dt = 0`` and ``log_decay = 0`` leaves the state as it is.
        log_decay: log a_t <= 0.
        B, C: input and output vectors, shared by the heads.
        start: where a patch begins: nothing before it reaches it or what follows.
        state: state carried in, or ``None`` for zeros.
        chunk: positions a chunk.

    Returns:
        outputs, and the state after the last position; both in float32 or wider.
    """
    with without_autocast(x):
        dtype = torch.promote_types(x.dtype, torch.float32)
        x, dt, log_decay, B, C = (tensor.to(dtype) for tensor in (x, dt, log_decay, B, C))
        batch, length, heads, width = x.shape
        chunk = min(chunk, length)
        pad = -length % chunk
        cut = (batch, (length + pad) // chunk, chunk)
        x, dt, log_decay = (_pad(tensor, pad).unflatten(1, cut[1:]) for tensor in (x, dt, log_decay))
        B, C, start = (_pad(tensor, pad).unflatten(1, cut[1:]) for tensor in (B, C, start))
        if state is None:
            state = x.new_zeros(batch, heads, B.shape[-1], width)
        outputs, state = _scan_chunks(x, dt, log_decay, B, C, start, state.to(dtype))
        return outputs.flatten(1, 2)[:, :length], state


def _pad(tensor: Tensor, pad: int) -> Tensor:
    return functional.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, pad)) if pad else tensor


def _scan_chunks(
    x: Float[Tensor, "B c Q H P"],
    dt: Float[Tensor, "B c Q H"],
    log_decay: Float[Tensor, "B c Q H"],
    B: Float[Tensor, "B c Q N"],
    C: Float[Tensor, "B c Q N"],
    start: Bool[Tensor, "B c Q"],
    state: Float[Tensor, "B H N P"],
) -> tuple[Float[Tensor, "B c Q H P"], Float[Tensor, "B H N P"]]:
    # Sums of log decays inside a chunk are differences of chunk-long cumulative sums. Taken in float64 they are exact
    # to 1e-12 even for decays of e^-80 a position; in float32 they would lose every digit.
    sums = log_decay.double().cumsum(2)  # B c Q H
    patch = start.cumsum(-1)  # patches begun in this chunk, up to and with each position
    decay = _decays(sums.transpose(2, 3), patch, x.dtype)
    written = x * dt[..., None]
    scores = (C @ B.transpose(-1, -2))[:, :, None] * decay  # B c H Q Q
    inside = (scores @ written.transpose(2, 3)).transpose(2, 3)

    ends = (patch == patch[..., -1:])[..., None]
    to_end = (sums[:, :, -1:] - sums).to(x.dtype).exp() * ends  # zero for patches that ended
    local = (B.transpose(-1, -2) @ (written * to_end[..., None]).flatten(3)).unflatten(3, x.shape[3:])  # B c N H P
    from_before = torch.where((patch == 0)[..., None], sums.to(x.dtype).exp(), 0.0)  # B c Q H
    states, state = [], state.transpose(1, 2)
    through = from_before[:, :, -1, None, :, None]
    for kept, new in zip(through.unbind(1), local.unbind(1), strict=True):
        states.append(state)
        state = kept * state + new
    carried = (C @ torch.stack(states, 1).flatten(3)).unflatten(3, x.shape[3:])
    outputs = torch.addcmul(inside, from_before[..., None], carried)
    return outputs, state.transpose(1, 2)


def _decays(
    sums: Float[Tensor, "B c H Q"], patch: Int[Tensor, "B c Q"], dtype: torch.dtype
) -> Float[Tensor, "B c H Q Q"]:
    """Decay from each position of a chunk to each later one of its patch; zero elsewhere."""
    later = torch.ones(patch.shape[-1], patch.shape[-1], dtype=torch.bool, device=patch.device).triu(1)
    unread = (patch[..., :, None] != patch[..., None, :]) | later
    # added, a mask costs no pass over the gradient, nor does a sum with the negative
    mask = torch.where(unread, -torch.inf, torch.zeros((), dtype=dtype, device=patch.device))
    gaps = (sums[..., :, None] + sums.neg()[..., None, :]).to(dtype)
    return gaps.add_(mask[:, :, None]).exp_()


def causal_convolution_reference(
    x: Float[Tensor, "B T D"],
    weight: Float[Tensor, "D W"],
    bias: Float[Tensor, " D"],
    segment: Tensor,
    tail: Float[Tensor, "B V D"],
) -> Float[Tensor, "B T D"]:
    """Add up the taps position by position; the twin of :func:`causal_convolution`."""
    taps = weight.shape[1]
    outputs = []
    for t in range(x.shape[1]):
        total = bias.expand_as(x[:, t])
        for lag in range(taps):
            tap = weight[:, taps - 1 - lag]
            if lag <= t:
                same = (segment[:, t - lag] == segment[:, t])[:, None]
                total = total + tap * x[:, t - lag] * same
            else:
                total = total + tap * tail[:, taps - 1 + t - lag] * (segment[:, t] == 0)[:, None]
        outputs.append(total)
    return torch.stack(outputs, 1)


def causal_convolution(
    x: Float[Tensor, "B T D"],
    weight: Float[Tensor, "D W"],
    bias: Float[Tensor, " D"],
    segment: Tensor | None,
    tail: Float[Tensor, "B V D"],
) -> Float[Tensor, "B T D"]:
    """Depthwise causal convolution that does not look across documents.

    Args:
        x: channels.
        weight: taps per channel; the last tap is the position itself.
        bias: added to every position.
        segment: document number of each position, shape (B, T); 0 continues the document of ``tail``. ``None`` if
            every row is of one document.
        tail: the W - 1 positions before the first; zeros where there are none.

    Returns:
        y_t = bias + sum over lags of weight[:, W - 1 - lag] x_{t - lag}, over lags inside t's document.
    """
    extended = torch.cat([tail.to(x.dtype), x], 1)
    return _Convolution.apply(extended, weight.t().contiguous(), bias, segment)


class _Convolution(torch.autograd.Function):
    """Taps added up in place, both ways, few rows at a time: autograd would pass over all memory thrice as often."""

    @staticmethod
    def forward(ctx: Any, extended: Tensor, taps: Tensor, bias: Tensor, segment: Tensor | None) -> Tensor:
        ctx.save_for_backward(extended, taps, segment)
        lags = taps.shape[0] - 1
        length = extended.shape[1] - lags
        totals = []
        for rows, documents in _few_rows(extended, segment):
            total = torch.addcmul(bias, rows[:, lags:], taps[-1])
            for tap in range(lags):
                total.addcmul_(_inside(rows[:, tap : tap + length], documents, tap, lags), taps[tap])
            totals.append(total)
        return _joined(totals)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        extended, taps, segment = ctx.saved_tensors
        lags, length = taps.shape[0] - 1, gradient.shape[1]
        to_rows, to_taps = [], torch.zeros_like(taps)
        for rows, documents, part in _few_rows(extended, segment, gradient):
            to_row, to_tap = functional.pad(part * taps[-1], (0, 0, lags, 0)), []
            for tap in range(lags):
                seen = _inside(part, documents, tap, lags)
                to_row[:, tap : tap + length].addcmul_(seen, taps[tap])
                to_tap.append((seen * rows[:, tap : tap + length]).sum((0, 1)))
            to_tap.append((part * rows[:, lags:]).sum((0, 1)))
            to_rows.append(to_row)
            to_taps = to_taps + torch.stack(to_tap)
        return _joined(to_rows), to_taps, gradient.sum((0, 1)), None


def _few_rows(first: Tensor, *others: Tensor | None) -> Iterable[tuple[Any, ...]]:
    """Rows in groups that fit a processor's cache; all of them where a graph is compiled, which needs no such care."""
    batch, length = first.shape[:2]
    count = batch if torch.compiler.is_compiling() else max(1, GROUP // length)
    groups = first.split(count)
    return zip(groups, *((None,) * len(groups) if t is None else t.split(count) for t in others), strict=True)


def _joined(parts: list[Tensor]) -> Tensor:
    """Groups of rows behind one another; a single group is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _inside(
    x: Float[Tensor, "B T D"], segment: Int[Tensor, "B T"] | None, tap: int, lags: int
) -> Float[Tensor, "B T D"]:
    """What belongs to a tap, zero where that looks out of the position's own document."""
    if segment is None:
        return x
    documents = functional.pad(segment, (lags, 0))
    return x * (documents[:, tap : tap + segment.shape[1]] == segment)[..., None]
