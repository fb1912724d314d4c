"""The local cover: a query reads its document's last w positions, itself included, rotary by offset in the band."""

from dataclasses import dataclass

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site, required
from sheafstate.ops import cast, wider, without_autocast
from sheafstate.ops.banded import band_pairs, banded_softmax, query_rotations, take_along
from sheafstate.ops.window import windowed_attention
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
        rows = site.rows
        if state is not None and rows.is_step:
            return self._step(x, rows, state)
        q, k, v = x.unflatten(-1, (3 * self.heads, self.d_head)).chunk(3, 2)
        before = 0
        if state is not None:
            before = self.window
            keys, values = state.entries.transpose(2, 3).to(k.dtype).unbind(1)
            k, v = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        q = q * self.d_head**-0.5
        first = (torch.arange(before, k.shape[1], device=x.device) - rows.offset).clamp(min=0)
        # in training always the same sums: a reentrant checkpoint runs first without gradients and must find the same
        if self.training or with_edges or (torch.is_grad_enabled() and x.requires_grad):
            section = self._banded(q, k, v, first, rows, before, with_edges)
        else:
            section = Section(windowed_attention(q, k, v, first, self.window, self.theta))
        kept = None
        if keep_state:
            last = torch.stack([self._last(t, rows, before) for t in (k, v)], 1)
            kept = LocalState(last.transpose(2, 3))
        return section, kept

    def _last(self, values: Float[Tensor, "B m H P"], rows: Rows, before: int) -> Float[Tensor, "B w H P"]:
        """The last w positions of every row; zeros where it is shorter and nothing was carried."""
        if before:
            return rows.final(values, before)
        index = rows.length[:, None] - self.window + torch.arange(self.window, device=values.device)
        found = take_along(values, index.clamp(min=0))
        return found.masked_fill((index < 0)[..., None, None], 0.0)

    def _step(self, x: Float[Tensor, "B one C"], rows: Rows, state: LocalState) -> tuple[Section, LocalState]:
        """One position: the query is turned to meet every age of the ring, by fixed rotations."""
        new = x.reshape(-1, 3, self.heads, 1, self.d_head)
        recent = state.entries.narrow(3, 1, self.window - 1)
        entries = torch.cat([recent, cast(new.narrow(1, 1, 2), state.entries.dtype)], 3)
        keys, values = entries.unbind(1)
        cos, sin = query_rotations(self.window, self.d_head, self.theta, keys.dtype, x.device)
        with without_autocast(x):
            query = cast(new.select(1, 0), keys.dtype)
            turned = torch.addcmul(query * cos, query.roll(self.d_head // 2, -1), sin)
            logits = turned.mul_(keys).sum(-1, dtype=wider(keys.dtype))
            if required(rows.settled) < self.window - 1:
                age = torch.arange(self.window - 1, -1, -1, device=x.device)
                logits = logits.masked_fill((age > rows.offset)[:, None], -torch.inf)
            weights = cast(logits.softmax(-1), values.dtype)
            section = (values * weights.unsqueeze(-1)).sum(2).unsqueeze(1)
        return Section(cast(section, x.dtype)), LocalState(entries)

    def _banded(
        self, q: Tensor, k: Tensor, v: Tensor, first: Tensor, rows: Rows, before: int, with_edges: bool
    ) -> Section:
        """What training and edge lists need: a softmax whose weights exist."""

        def by_head(tensor: Tensor) -> Tensor:
            return tensor.transpose(1, 2).flatten(0, 1)

        stop = torch.arange(before + 1, k.shape[1] + 1, device=q.device).expand_as(first)
        bands = by_head(q), by_head(k), by_head(v), stop, first
        section, _, weights = banded_softmax(*bands, self.window, theta=self.theta, return_weights=with_edges)
        section = section.unflatten(0, (len(first), self.heads)).transpose(1, 2)
        edges = None if weights is None else self._edges(rows, stop, first, weights, before)
        return Section(section, None, edges)

    def _edges(self, rows: Rows, stop: Tensor, first: Tensor, weights: Tensor, before: int) -> Edges:
        slot, exists = band_pairs(stop, first, self.window)
        exists = (exists & rows.valid[..., None])[:, :, None].expand(-1, -1, self.heads, -1)
        weights = weights.unflatten(0, (-1, self.heads)).transpose(1, 2)
        return Edges.of(exists, (slot - before)[:, :, None].expand_as(exists), weights)
