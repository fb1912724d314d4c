"""The local cover: a query reads its document's last w positions, itself included, rotary by offset in the band."""

from dataclasses import dataclass

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site
from sheafstate.ops.banded import band_pairs, banded_softmax
from sheafstate.shapes import Float, Tensor

__all__ = ["LocalReader", "LocalState"]


@dataclass(frozen=True)
class LocalState:
    """The last w keys (unrotated) and values of every row, the newest last."""

    keys: Float[Tensor, "B w H P"]
    values: Float[Tensor, "B w H P"]


class LocalReader(nn.Module):
    """Sliding-window attention as the banded softmax of the natural ordering."""

    def __init__(self, config: SheafStateConfig, heads: int) -> None:
        super().__init__()
        self.heads, self.d_head, self.window, self.theta = heads, config.d_head, config.window, config.rope_theta
        self.width = 3 * heads * config.d_head

    def initial_state(self, batch: int, like: Tensor) -> LocalState:
        """A ring of zeros; no query reaches it, since bands begin at the document's first position."""
        ring = like.new_zeros(batch, self.window, self.heads, self.d_head)
        return LocalState(ring, ring)

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: LocalState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, LocalState | None]:
        """Read the window of every position."""
        rows, batch = site.rows, x.shape[0]
        q, k, v = x.unflatten(-1, (3 * self.heads, self.d_head)).chunk(3, 2)
        if state is None and keep_state:
            state = self.initial_state(batch, x)
        before = 0
        if state is not None:
            before = self.window
            k, v = torch.cat([state.keys.to(k.dtype), k], 1), torch.cat([state.values.to(v.dtype), v], 1)
        stop, first = self._band(rows, before)

        def by_head(tensor: Tensor) -> Tensor:
            return tensor.transpose(1, 2).flatten(0, 1)

        section, _, weights = banded_softmax(
            by_head(q * self.d_head**-0.5),
            by_head(k),
            by_head(v),
            stop.repeat_interleave(self.heads, 0),
            first.repeat_interleave(self.heads, 0),
            self.window,
            theta=self.theta,
            return_weights=with_edges,
        )
        section = section.unflatten(0, (batch, self.heads)).transpose(1, 2)
        edges = None if weights is None else self._edges(rows, stop, first, weights, before)
        kept = LocalState(rows.final(k, self.window), rows.final(v, self.window)) if keep_state else None
        return Section(section, None, edges), kept

    def _band(self, rows: Rows, before: int) -> tuple[Tensor, Tensor]:
        """Bands in the extended row that has ``before`` carried positions in front."""
        position = torch.arange(before, before + rows.offset.shape[1], device=rows.offset.device)
        first = (position - rows.offset).clamp(min=0)
        return (position + 1).expand_as(first), first

    def _edges(self, rows: Rows, stop: Tensor, first: Tensor, weights: Tensor, before: int) -> Edges:
        slot, exists = band_pairs(stop, first, self.window)
        exists = (exists & rows.valid[..., None])[:, :, None].expand(-1, -1, self.heads, -1)
        weights = weights.unflatten(0, (-1, self.heads)).transpose(1, 2)
        return Edges.of(exists, (slot - before)[:, :, None].expand_as(exists), weights)
