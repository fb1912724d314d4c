"""The instruction cover: the first s positions of the document, kept for good, and the last licensed anchors.

Both are bands of the natural ordering with few written positions; their softmaxes are joined into one.
"""

from dataclasses import dataclass

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site, required
from sheafstate.ops import without_autocast
from sheafstate.ops.banded import band_pairs, banded_softmax, join_softmax, take_along, written_slots
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = ["AnchorReader", "AnchorState"]


@dataclass(frozen=True)
class AnchorState:
    """What instruction heads keep: two rings side by side, the newest entry of each the last.

    Attributes:
        entries: keys and values; n is s + r_a, the first s positions of the document and then the last r_a anchors.
        log_weight: log-licences, minus infinity where there is no entry.
    """

    entries: Float[Tensor, "B two H n P"]
    log_weight: Float[Tensor, "B H n"]


@dataclass(frozen=True)
class _Band:
    """One of the two bands in extended rows, whose first ``before`` positions are carried; heads are rows here."""

    k: Float[Tensor, "R n P"]
    v: Float[Tensor, "R n P"]
    bias: Float[Tensor, "R n"]
    slots: Int[Tensor, "R n"]
    stop: Int[Tensor, "R n"]
    first: Int[Tensor, "R n"]
    degree: int
    before: int

    @classmethod
    def lay_out(
        cls, k: Tensor, v: Tensor, bias: Tensor, written: Bool[Tensor, "R n"], patch: Tensor, degree: int, before: int
    ) -> "_Band":
        slots, stop, first = written_slots(written, patch, inclusive=True)
        return cls(
            take_along(k, slots), take_along(v, slots), bias.gather(1, slots), slots, stop, first, degree, before
        )

    def read(self, q: Float[Tensor, "R T P"], with_weights: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        stop, first = self.stop[:, self.before :], self.first[:, self.before :]
        return banded_softmax(q, self.k, self.v, stop, first, self.degree, self.bias, return_weights=with_weights)

    def newest(self) -> tuple[Tensor, Tensor, Tensor]:
        """The last ``degree`` entries of the patch that each row ends in; log-weight minus infinity where none is."""
        slot, exists = band_pairs(self.stop[:, -1:], self.first[:, -1:], self.degree)
        slot, exists = slot[:, 0].clamp(min=0), exists[:, 0]
        bias = self.bias.gather(1, slot).masked_fill(~exists, -torch.inf)
        return take_along(self.k, slot), take_along(self.v, slot), bias

    def edges(self, rows: Rows, weights: Tensor, share: Tensor, heads: int) -> Edges:
        slot, exists = band_pairs(self.stop, self.first, self.degree)
        earlier = self.slots.gather(1, slot.clamp(min=0).flatten(1)).unflatten(1, slot.shape[1:])
        tables = (exists, earlier, weights * share[..., None])
        exists, earlier, weights = (t.unflatten(0, (-1, heads)).transpose(1, 2) for t in tables)
        return Edges.of(exists & rows.valid[..., None, None], earlier, weights)


class AnchorReader(nn.Module):
    """Attention to the kept positions and the licensed anchors, without positions."""

    def __init__(self, config: SheafStateConfig, heads: int) -> None:
        super().__init__()
        self.heads, self.d_head = heads, config.d_head
        self.num_kept, self.num_anchors = config.num_kept, config.num_anchors
        self.width = 3 * heads * config.d_head

    def initial_state(self, batch: int, like: Tensor) -> AnchorState:
        """Nothing kept, no anchor."""
        count, wide = self.num_kept + self.num_anchors, torch.promote_types(like.dtype, torch.float32)
        return AnchorState(
            like.new_zeros(batch, 2, self.heads, count, self.d_head),
            like.new_full((batch, self.heads, count), -torch.inf, dtype=wide),
        )

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: AnchorState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, AnchorState | None]:
        """Read what is kept and the last anchors of every position's document."""
        rows, batch = site.rows, x.shape[0]
        if state is not None and rows.is_step:
            return self._step(x, site, state)
        q, k, v = (t.transpose(1, 2) for t in x.unflatten(-1, (3 * self.heads, self.d_head)).chunk(3, 2))
        bands = self._kept_band(rows, k, v, state), self._anchor_band(site, k, v, state)
        q = (q * self.d_head**-0.5).flatten(0, 1)
        read = [band.read(q, with_edges) for band in bands]
        section, _, shares = join_softmax([(part, normaliser) for part, normaliser, _ in read])
        section = section.unflatten(0, (batch, self.heads)).transpose(1, 2)
        used = [
            band.edges(rows, weights, share, self.heads)
            for band, (_, _, weights), share in zip(bands, read, shares, strict=True)
            if weights is not None
        ]
        edges = Edges.concatenate(used) if used else None
        return Section(section, None, edges), self._keep(bands, batch) if keep_state else None

    def _step(self, x: Float[Tensor, "B one C"], site: Site, state: AnchorState) -> tuple[Section, AnchorState]:
        """One position: it joins the ring that it belongs to, then reads both."""
        new = x.unflatten(-1, (3, self.heads, 1, self.d_head))[:, 0]
        query, entry = new[:, 0, :, 0], new[:, 1:].to(state.entries.dtype)
        weight, s = required(site.log_anchor), self.num_kept
        entries, log_weight = state.entries, state.log_weight
        pushed = torch.cat([entries[..., :s, :], entries[..., s + 1 :, :], entry], 3)
        pushed_weight = torch.cat([log_weight[..., :s], log_weight[..., s + 1 :], weight], 2)
        if required(site.rows.settled) < s:
            kept = torch.cat([entries[..., 1:s, :], entry, entries[..., s:, :]], 3)
            kept_weight = torch.cat([log_weight[..., 1:s], torch.zeros_like(weight), log_weight[..., s:]], 2)
            early = (site.rows.offset < s)[:, None]
            entries = torch.where(early[:, None, ..., None], kept, entries)
            log_weight = torch.where(early, kept_weight, log_weight)
        is_anchor = weight > -torch.inf
        entries = torch.where(is_anchor[:, None, ..., None], pushed, entries)
        log_weight = torch.where(is_anchor, pushed_weight, log_weight)
        keys, values = entries.unbind(1)
        with without_autocast(x):
            scaled = (query * self.d_head**-0.5).to(keys.dtype).flatten(0, 1)[..., None]
            logits = torch.bmm(keys.flatten(0, 1), scaled).view_as(log_weight).to(log_weight.dtype) + log_weight
            weights = logits.softmax(-1).to(values.dtype).flatten(0, 1)[:, None]
            section = torch.bmm(weights, values.flatten(0, 1)).view(len(x), 1, self.heads, -1)
        return Section(section.to(x.dtype)), AnchorState(entries, log_weight)

    def _kept_band(self, rows: Rows, k: Tensor, v: Tensor, state: AnchorState | None) -> _Band:
        written, patch, before = rows.valid & (rows.offset < self.num_kept), rows.segment, 0
        bias = k.new_zeros(k.shape[:3], dtype=torch.promote_types(k.dtype, torch.float32))
        if state is not None:
            before = self.num_kept
            k, v = self._behind(state.entries[..., :before, :], k, v)
            bias = torch.nn.functional.pad(bias, (before, 0))
            # a ring of s entries holds as many as the document that goes on has positions, the newest last
            age = before - torch.arange(before, device=k.device)
            held = torch.where(rows.segment[:, :1] == 0, rows.offset[:, :1], 0)
            written, patch = torch.cat([age <= held, written], 1), torch.nn.functional.pad(patch, (before, 0))
        written, patch = (t.repeat_interleave(self.heads, 0) for t in (written, patch))
        k, v, bias = (t.flatten(0, 1) for t in (k, v, bias))
        return _Band.lay_out(k, v, bias, written, patch, self.num_kept, before)

    def _anchor_band(self, site: Site, k: Tensor, v: Tensor, state: AnchorState | None) -> _Band:
        patch, weight, before = site.rows.segment, required(site.log_anchor), 0
        if state is not None:
            before = self.num_anchors
            k, v = self._behind(state.entries[..., self.num_kept :, :], k, v)
            weight = torch.cat([state.log_weight[..., self.num_kept :], weight], 2)
            patch = torch.nn.functional.pad(patch, (before, 0))
        written = weight > -torch.inf
        bias = weight.masked_fill(~written, 0.0)
        k, v, bias, written = (t.flatten(0, 1) for t in (k, v, bias, written))
        return _Band.lay_out(k, v, bias, written, patch.repeat_interleave(self.heads, 0), self.num_anchors, before)

    def _keep(self, bands: tuple[_Band, _Band], batch: int) -> AnchorState:
        """What both bands hold at the end of the rows, side by side."""
        newest = zip(*(band.newest() for band in bands), strict=True)
        keys, values, weights = (torch.cat(parts, 1).unflatten(0, (batch, self.heads)) for parts in newest)
        return AnchorState(torch.stack([keys, values], 1), weights)

    @staticmethod
    def _behind(entries: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """New keys and values behind those of a ring."""
        keys, values = entries.unbind(1)
        return torch.cat([keys.to(k.dtype), k], 2), torch.cat([values.to(v.dtype), v], 2)
