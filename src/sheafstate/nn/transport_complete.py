"""The complete cover: a query reads every earlier position of its document. Quadratic; for diagnosis and baselines."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site
from sheafstate.ops.banded import rotary_angles, rotate
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = ["CompleteReader", "CompleteState"]


@dataclass(frozen=True)
class CompleteState:
    """Every key (rotated by its position in the document) and value so far; this state grows with the context.

    Attributes:
        keys, values: as they were written, rows padded where they were masked.
        readable: whether the entry belongs to the document that the row is in.
    """

    keys: Float[Tensor, "B n H P"]
    values: Float[Tensor, "B n H P"]
    readable: Bool[Tensor, "B n"]


class CompleteReader(nn.Module):
    """Causal softmax attention with rotary embeddings (half-split), as in a Llama layer."""

    def __init__(self, config: SheafStateConfig, heads: int) -> None:
        super().__init__()
        self.heads, self.d_head, self.theta = heads, config.d_head, config.rope_theta
        self.width = 3 * heads * config.d_head

    def initial_state(self, batch: int, like: Tensor) -> CompleteState:
        """No entries."""
        empty = like.new_zeros(batch, 0, self.heads, self.d_head)
        return CompleteState(empty, empty, torch.zeros(batch, 0, dtype=torch.bool, device=like.device))

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: CompleteState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, CompleteState | None]:
        """Read everything before every position."""
        rows = site.rows
        q, k, v = x.unflatten(-1, (3 * self.heads, self.d_head)).chunk(3, 2)
        angles = self._angles(rows, x)
        q, k = rotate(q, angles), rotate(k, angles)
        readable = torch.ones_like(rows.valid[:, :0])
        if state is not None:
            k, v = torch.cat([state.keys.to(k.dtype), k], 1), torch.cat([state.values.to(v.dtype), v], 1)
            readable = state.readable
        mask = self._mask(rows, readable)
        section = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask[:, None]
        )
        edges = self._edges(rows, q, k, mask) if with_edges else None
        kept = None
        if keep_state:
            last = rows.last_segment()[:, None]
            kept = CompleteState(k, v, torch.cat([readable & (last == 0), rows.valid & (rows.segment == last)], 1))
        return Section(section.transpose(1, 2), None, edges), kept

    def _angles(self, rows: Rows, like: Tensor) -> Float[Tensor, "B T one half"]:
        frequencies = rotary_angles(1, self.d_head, self.theta, like, begin=1)[0]
        return rows.offset[..., None, None].to(frequencies.dtype) * frequencies

    @staticmethod
    def _mask(rows: Rows, readable: Bool[Tensor, "B n"]) -> Bool[Tensor, "B T m"]:
        """Earlier or same position, same document. A position past its row's end reads itself, to stay finite."""
        segment: Int[Tensor, "B T"] = rows.segment
        carried = readable[:, None, :] & (segment == 0)[..., None]
        same = (segment[..., :, None] == segment[..., None, :]).tril()
        return torch.cat([carried, same], -1)

    def _edges(self, rows: Rows, q: Tensor, k: Tensor, mask: Tensor) -> Edges:
        logits = torch.einsum("bthp,bmhp->bthm", q, k) * self.d_head**-0.5
        exists = (mask & rows.valid[..., None])[:, :, None].expand_as(logits)
        weights = logits.masked_fill(~mask[:, :, None], -torch.inf).softmax(-1)
        return Edges.of(exists, torch.arange(k.shape[1], device=k.device).expand_as(exists), weights)
