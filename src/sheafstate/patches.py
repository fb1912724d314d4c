"""The nine patch types: what covers a position, how many relations that costs, what is kept while decoding.

One table (``PATCHES``) says for every type by which ordering its cover runs, whether a head of it reads by transport
(a softmax over few written positions) or by dynamics (a state-space recurrence), and in which order the types appear
wherever the model lists them. Source: DESIGN §2.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["HEAD_TYPES", "INTERVAL_TYPES", "PATCHES", "Ordering", "Patch", "PatchType", "Reader"]


class PatchType(StrEnum):
    """Name of a patch type; the value is what configurations, files and tables use."""

    LOCAL = "local"
    SYNTAX = "syntax"
    SENTENCE = "sentence"
    INSTRUCTION = "instruction"
    TOPIC = "topic"
    MEMORY = "memory"
    RETRIEVAL = "retrieval"
    WORKSPACE = "workspace"
    OUTPUT = "output"


class Ordering(StrEnum):
    """The ordering of the positions along which a cover's patches are runs."""

    NATURAL = "natural"
    ADDRESS = "address"  # by (document, address, position)
    POINT = "point"  # every position is its own patch


class Reader(StrEnum):
    """How a section on a patch comes about."""

    TRANSPORT = "transport"
    DYNAMICS = "dynamics"
    GLUED = "glued"  # the output patch holds what gluing makes of the others


@dataclass(frozen=True)
class Patch:
    """A row of the table.

    Attributes:
        type: the patch type.
        ordering: along which ordering its patches are runs.
        reader: transport, dynamics, or glued.
        has_boundary: whether a learned boundary ends its patches before the document does.
        dt: step size at initialisation of the types read by dynamics, log-spaced from 0.3 to 0.001; else ``None``.
        description: one line for people.
    """

    type: PatchType
    ordering: Ordering
    reader: Reader
    has_boundary: bool
    dt: float | None
    description: str


_N, _A = Ordering.NATURAL, Ordering.ADDRESS
_T, _D = Reader.TRANSPORT, Reader.DYNAMICS

PATCHES: dict[PatchType, Patch] = {
    patch.type: patch
    for patch in (
        Patch(PatchType.LOCAL, _N, _T, False, None, "the last w positions, itself included"),
        Patch(PatchType.SYNTAX, _N, _D, True, 0.3, "a short span that a learned boundary ends"),
        Patch(PatchType.SENTENCE, _N, _D, True, 0.0448, "a longer span that a learned boundary ends"),
        Patch(PatchType.INSTRUCTION, _N, _T, False, None, "the first s positions and the last licensed anchors"),
        Patch(PatchType.TOPIC, _N, _D, True, 0.0067, "the longest span that a learned boundary ends"),
        Patch(PatchType.MEMORY, _A, _D, False, 0.0173, "one running vector per address"),
        Patch(PatchType.RETRIEVAL, _A, _T, False, None, "the last r written positions of the same address"),
        Patch(PatchType.WORKSPACE, _N, _D, False, 0.001, "the whole document, forgetting slowly"),
        Patch(
            PatchType.OUTPUT, Ordering.POINT, Reader.GLUED, False, None, "the position itself, where types are glued"
        ),
    )
}

HEAD_TYPES: tuple[PatchType, ...] = tuple(t for t, p in PATCHES.items() if p.reader is not Reader.GLUED)
"""The types that heads can have, in the order in which heads are laid out."""

INTERVAL_TYPES: tuple[PatchType, ...] = tuple(t for t, p in PATCHES.items() if p.has_boundary)
"""The types whose patches are ended by a learned boundary."""
