"""One layer; the formula of the model stands here.

h        = norm(x)
site     = Site(h)
sections = Dynamics(h, site) + Transport(h, site)
y, c     = Gluing(sections, h, site)
x        = x + y
x        = x + Experts(norm(x))
"""

from dataclasses import dataclass

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.dynamics import Dynamics, DynamicsState
from sheafstate.nn.experts import Experts, Load
from sheafstate.nn.gluing import Glued, Gluing
from sheafstate.nn.norm import RMSNorm
from sheafstate.nn.quant_linear import linear_map, project
from sheafstate.nn.records import Initialized, Rows, Sections, Site, split_channels
from sheafstate.nn.site import LearnedSite
from sheafstate.nn.transport import Transport, TransportState
from sheafstate.shapes import Float, Tensor

__all__ = ["Block", "BlockReport", "BlockState", "initialize"]

NARROW = 64
"""Channels narrower than this are no product of their own."""
PIECE = 4096
"""Positions of a text that are read at a time where no gradients are wanted: what a layer needs on its way to its
output is then bounded, however long the text."""


@dataclass(frozen=True)
class BlockState:
    """What a layer carries from call to call."""

    dynamics: DynamicsState
    transport: TransportState


@dataclass(frozen=True)
class BlockReport:
    """What a layer did: its site, its sections with their edges, what gluing and routing made of them."""

    site: Site
    sections: Sections
    glued: Glued
    load: Load | None


class Block(nn.Module):
    """A layer of the model: one input projection, then the letters of the tuple in their order."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        self.covers = tuple(config.covers)
        # a complete site reads everything at once, and the load of routed experts is one of all positions
        self.reads_in_pieces = config.site != "complete" and not config.num_experts
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        self.site = LearnedSite(config)
        self.dynamics = Dynamics(config)
        self.transport = Transport(config)
        self.gluing = Gluing(config)
        self.expert_norm = RMSNorm(config.d_model, config.norm_eps)
        self.experts = Experts(config)
        parts = (self.site, self.dynamics, self.transport, self.gluing)
        layout = {name: width for part in parts for name, width in part.channels().items() if width}
        self.narrow = {name: width for name, width in layout.items() if width < NARROW}
        self.wide = {name: width for name, width in layout.items() if width >= NARROW}
        self.sizes = [sum(self.narrow.values()), *self.wide.values()]
        self.in_proj = linear_map(config, config.d_model, sum(self.sizes))
        initialize(self)

    def initial_state(self, batch: int, like: Tensor) -> BlockState:
        """The state before the first token."""
        return BlockState(self.dynamics.initial_state(batch, like), self.transport.initial_state(batch, like))

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        rows: Rows,
        state: BlockState | None = None,
        keep_state: bool = False,
        with_edges: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], BlockState | None, BlockReport]:
        """Apply the layer.

        Args:
            x: residual stream of compacted rows.
            rows: which positions exist, and their documents.
            state: what the last call left, or ``None``.
            keep_state: whether to return the state after the last position.
            with_edges: whether to list the relations used.
        """
        quietly = not (self.training or with_edges or torch.is_grad_enabled() or torch.compiler.is_compiling())
        if quietly and self.reads_in_pieces and x.shape[1] > PIECE:
            return self._in_pieces(x, rows, state, keep_state)
        return self._read(x, rows, state, keep_state, with_edges)

    def _in_pieces(
        self, x: Float[Tensor, "B T D"], rows: Rows, state: BlockState | None, keep_state: bool
    ) -> tuple[Float[Tensor, "B T D"], BlockState | None, BlockReport]:
        """Read piece by piece; the report is the last one's."""
        length = x.shape[1]
        read, state, report = self._read(x[:, :PIECE], rows.piece(0, PIECE), state, True, False)
        output = read.new_empty(x.shape)
        output[:, :PIECE] = read
        for begin in range(PIECE, length, PIECE):
            end = min(begin + PIECE, length)
            piece = rows.piece(begin, end)
            output[:, begin:end], state, report = self._read(x[:, begin:end], piece, state, True, False)
        return output, state if keep_state else None, report

    def _read(
        self, x: Float[Tensor, "B T D"], rows: Rows, state: BlockState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Float[Tensor, "B T D"], BlockState | None, BlockReport]:
        h = self.norm(x)
        channels = self._channels(h)
        site = self.site(h, channels, rows)
        carried = (None, None) if state is None else (state.dynamics, state.transport)
        flowed, dynamics = self.dynamics(channels, site, carried[0], keep_state, with_edges)
        moved, transport = self.transport(channels, site, carried[1], keep_state, with_edges)
        made = flowed | moved
        sections = {kind: made[kind] for kind in self.covers}
        y, glued = self.gluing(sections, channels, with_edges)
        x = x + y
        refined, load = self.experts(self.expert_norm(x), rows)
        kept = BlockState(dynamics, transport) if keep_state else None
        return x + refined, kept, BlockReport(site, sections, glued, load)

    def _channels(self, h: Float[Tensor, "B T D"]) -> dict[str, Tensor]:
        """The parts' channels of h; those that are narrow come out of one product and lie beside one another."""
        first, *rest = project(self.in_proj, h, self.sizes)
        return split_channels(self.narrow, first) | dict(zip(self.wide, rest, strict=True))


@torch.no_grad()
def initialize(module: nn.Module) -> None:
    """Set every parameter and buffer in a tree of modules that states its initial values."""
    for part in module.modules():
        if isinstance(part, Initialized):
            for name, value in part.initial_values().items():
                getattr(part, name).copy_(value)
