"""The local cover: a query reads its document's last w positions, itself included, rotary by offset in the band."""

from dataclasses import dataclass

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site, required
from sheafstate.ops import without_autocast
from sheafstate.ops.banded import band_pairs, banded_softmax, query_rotations
from sheafstate.shapes import Float, Tensor

__all__ = ["LocalReader", "LocalState"]


@dataclass(frozen=True)
class LocalState:
    """The last w keys (unrotated) and values of every row, the newest last."""

    entries: Float[Tensor, "B two H w P"]


class LocalReader(nn.Module):
    """Sliding-window attention as the banded softmax of the natural ordering."""

    def __init__(self, config: SheafStateConfig, heads: int) -> None:
        super().__init__()
        self.heads, self.d_head, self.window, self.theta = heads, config.d_head, config.window, config.rope_theta
        self.width = 3 * heads * config.d_head

    def initial_state(self, batch: int, like: Tensor) -> LocalState:
        """A ring of zeros; no query reaches it, since bands begin at the document's first position."""
        return LocalState(like.new_zeros(batch, 2, self.heads, self.window, self.d_head))

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: LocalState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, LocalState | None]:
        """Read the window of every position."""
        rows, batch = site.rows, x.shape[0]
        if state is not None and rows.is_step:
            return self._step(x, rows, state)
        q, k, v = x.unflatten(-1, (3 * self.heads, self.d_head)).chunk(3, 2)
        if state is None and keep_state:
            state = self.initial_state(batch, x)
        before = 0
        if state is not None:
            before = self.window
            keys, values = state.entries.transpose(2, 3).to(k.dtype).unbind(1)
            k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
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
        kept = None
        if keep_state:
            last = torch.stack([rows.final(k, self.window), rows.final(v, self.window)], 1)
            kept = LocalState(last.transpose(2, 3))
        return Section(section, None, edges), kept

    def _step(self, x: Float[Tensor, "B one C"], rows: Rows, state: LocalState) -> tuple[Section, LocalState]:
        """One position: the query is turned to meet every age of the ring, in one product with fixed rotations."""
        new = x.unflatten(-1, (3, self.heads, 1, self.d_head))[:, 0]
        entries = torch.cat([state.entries[..., 1:, :], new[:, 1:].to(state.entries.dtype)], 3)
        keys, values = entries.unbind(1)
        table = query_rotations(self.window, self.d_head, self.theta, str(keys.dtype), str(x.device))
        with without_autocast(x):
            turned = (new[:, 0, :, 0].flatten(0, 1).to(keys.dtype) @ table).view_as(keys)
            logits = (turned * keys).sum(-1, dtype=torch.promote_types(keys.dtype, torch.float32))
            if required(rows.settled) < self.window - 1:
                age = torch.arange(self.window - 1, -1, -1, device=x.device)
                logits = logits.masked_fill((age > rows.offset)[:, None], -torch.inf)
            weights = logits.softmax(-1).to(values.dtype)
            section = torch.bmm(weights.flatten(0, 1)[:, None], values.flatten(0, 1)).view(len(x), 1, self.heads, -1)
        return Section(section.to(x.dtype)), LocalState(entries)

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
