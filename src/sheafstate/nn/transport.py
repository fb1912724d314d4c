"""Transport along licensed morphisms: local, instruction and retrieval heads, joined in one map from h to sections.

Each reader owns its record of state and turns its channels into sections; none knows the others. Source: DESIGN §2.
"""

from dataclasses import dataclass
from typing import Any, cast

from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Sections, Site
from sheafstate.nn.transport_anchors import AnchorReader, AnchorState
from sheafstate.nn.transport_complete import CompleteReader, CompleteState
from sheafstate.nn.transport_local import LocalReader, LocalState
from sheafstate.nn.transport_retrieval import RetrievalReader, RetrievalState
from sheafstate.patches import PatchType
from sheafstate.shapes import Tensor

__all__ = ["Transport", "TransportState"]


@dataclass(frozen=True)
class TransportState:
    """States of the readers in use, ``None`` for the others."""

    local: LocalState | CompleteState | None = None
    instruction: AnchorState | None = None
    retrieval: RetrievalState | None = None


TypeReader = LocalReader | CompleteReader | AnchorReader | RetrievalReader


class Transport(nn.Module):
    """Softmaxes over few written positions, one reader per type."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        local = CompleteReader if config.site == "complete" else LocalReader
        makers = {PatchType.LOCAL: local, PatchType.INSTRUCTION: AnchorReader, PatchType.RETRIEVAL: RetrievalReader}
        self.readers = nn.ModuleDict(
            {kind.value: maker(config, config.covers[kind]) for kind, maker in makers.items() if kind in config.covers}
        )

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {name: reader.width for name, reader in self._readers().items()}

    def initial_state(self, batch: int, like: Tensor) -> TransportState:
        """The state before the first token."""
        states: dict[str, Any] = {name: r.initial_state(batch, like) for name, r in self._readers().items()}
        return TransportState(**states)

    def forward(
        self,
        channels: dict[str, Tensor],
        site: Site,
        state: TransportState | None = None,
        keep_state: bool = False,
        with_edges: bool = False,
    ) -> tuple[Sections, TransportState | None]:
        """Sections of the transported types, and the state after the last position if it is to be kept."""
        sections: Sections = {}
        states = {}
        for name, reader in self.readers.items():
            carried = None if state is None else getattr(state, name)
            sections[PatchType(name)], states[name] = reader(channels[name], site, carried, keep_state, with_edges)
        return sections, TransportState(**states) if keep_state else None

    def _readers(self) -> dict[str, TypeReader]:
        """The readers by type, as what they are; a ``ModuleDict`` only knows that they are modules."""
        return cast(dict[str, TypeReader], dict(self.readers.items()))
