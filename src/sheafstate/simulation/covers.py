"""The sheaf site: edges by cover laws, from what a sequence shows.

Three laws of DESIGN §2, each with a bounded degree whatever the text needs:

======== ==================== ======================================================== ==================
law      patch type           a position is linked to                                  degree
======== ==================== ======================================================== ==================
window   local                the w positions before it                                w
anchors  instruction          if it refers to an anchor: those of the first s anchors  s + r_a
                              and of the last r_a after them that show its label
content  retrieval            if it mentions an entity: the last r mentions of it      r
======== ==================== ======================================================== ==================

The functions take an ``Observed``, so they cannot see G*. Edges are named by the relation that they are made for
(``Relation``): the anchor law serves two of them, instructions and topics, told apart by the mark.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.edges import Band, EdgeList, concatenate
from sheafstate.patches import PatchType
from sheafstate.simulation.config import Budget
from sheafstate.simulation.generator import Mark, Observed, Relation

__all__ = ["COVERS", "anchor_cover", "content_cover", "sheaf_site", "window_cover"]

COVERS: dict[Relation, PatchType] = {
    Relation.LOCAL: PatchType.LOCAL,
    Relation.INSTRUCTION: PatchType.INSTRUCTION,
    Relation.TOPIC: PatchType.INSTRUCTION,
    Relation.RECURRENCE: PatchType.RETRIEVAL,
}
"""Which patch type's cover law serves which relation."""

_ANCHORS_OF = {Relation.INSTRUCTION: Mark.INSTRUCTION, Relation.TOPIC: Mark.TOPIC}
_REFERENCES_TO = {Relation.INSTRUCTION: Mark.INSTRUCTION_REFERENCE, Relation.TOPIC: Mark.TOPIC_REFERENCE}


def sheaf_site(observed: Observed, budget: Budget) -> EdgeList:
    """All three covers' edges; a pair that two laws make is listed under both."""
    covers = [
        window_cover(observed.length, budget.window),
        *(anchor_cover(observed, budget, relation) for relation in _ANCHORS_OF),
        content_cover(observed, budget),
    ]
    return concatenate(covers)


def window_cover(length: int, window: int) -> EdgeList:
    """Every position to the ``window`` positions before it."""
    return Band(length, window, str(Relation.LOCAL)).edge_list()


def anchor_cover(observed: Observed, budget: Budget, relation: Relation) -> EdgeList:
    """Every reference of a kind (instruction or topic) to the held anchors of that kind that show its label.

    Held at t are the first s anchors of the sequence and the last r_a of those after them, of either kind, before t.
    """
    anchors = observed.at(*_ANCHORS_OF.values())
    references = observed.at(_REFERENCES_TO[relation])
    passed = np.searchsorted(anchors, references)[:, None]
    kept = np.broadcast_to(np.arange(budget.kept_anchors), (len(references), budget.kept_anchors))
    recent = passed - 1 - np.arange(budget.recent_anchors)
    held = np.concatenate(
        [np.where(kept < passed, kept, -1), np.where(recent >= budget.kept_anchors, recent, -1)], axis=1
    )
    row, column = np.nonzero(held >= 0)
    later, earlier = references[row], anchors[held[row, column]]
    matches = (observed.marks[earlier] == _ANCHORS_OF[relation]) & (observed.labels[earlier] == observed.labels[later])
    return _typed(later[matches], earlier[matches], relation, observed.length)


def content_cover(observed: Observed, budget: Budget) -> EdgeList:
    """Every mention to the last r mentions of the same entity before it: runs along the ordering (entity, position)."""
    mentions = observed.at(Mark.MENTION)
    order = np.argsort(observed.labels[mentions], kind="stable")
    ordered = mentions[order]
    entity = observed.labels[ordered]
    rows = np.arange(len(ordered))[:, None] - np.arange(budget.recent_mentions, 0, -1)
    row, column = np.nonzero((rows >= 0) & (entity[np.maximum(rows, 0)] == entity[:, None]))
    return _typed(ordered[row], ordered[rows[row, column]], Relation.RECURRENCE, observed.length)


def _typed(later: NDArray[np.int64], earlier: NDArray[np.int64], relation: Relation, length: int) -> EdgeList:
    return EdgeList(later, earlier, np.zeros(len(later), np.int8), (str(relation),), length)
