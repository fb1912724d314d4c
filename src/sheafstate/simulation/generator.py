"""Sequences with a known sparse typed dependency graph G*, drawn from a seed.

Two records come out and are kept apart: ``Observed``, what the sequence shows (marks and labels), from which a site may
be built, and the graph G* itself, against which a site is measured. Nothing loops over positions.

Every position t depends on ``local_links`` of the ``local_span`` positions before it. A few positions play a role
besides: an instruction stands in the preamble, a topic anchor opens a topic (and takes over the label of the topic
that is no longer live), a reference depends on one instruction or live topic and shows its label, a mention shows its
entity and depends on one of the entity's newest mentions. A pair has one type: where such a link falls on a local
one, it is the local one.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sheafstate.edges import EdgeList
from sheafstate.errors import InputError
from sheafstate.simulation.config import MAX_LENGTH, Rates

__all__ = ["Mark", "Observed", "Relation", "Sample", "generate"]

Positions = NDArray[np.int64]


class Relation(StrEnum):
    """The types of true edges."""

    LOCAL = "local"
    INSTRUCTION = "instruction"
    TOPIC = "topic"
    RECURRENCE = "recurrence"


class Mark(IntEnum):
    """What a position shows about itself."""

    NONE = 0
    INSTRUCTION = 1
    TOPIC = 2
    INSTRUCTION_REFERENCE = 3
    TOPIC_REFERENCE = 4
    MENTION = 5


@dataclass(frozen=True, eq=False)
class Observed:
    """What a sequence shows.

    Attributes:
        marks: int8 ``(length,)``, codes of ``Mark``.
        labels: int32 ``(length,)``: the instruction's number, the topic's slot or the entity; −1 without a mark.
    """

    marks: NDArray[np.int8]
    labels: NDArray[np.int32]

    @property
    def length(self) -> int:
        """Number of positions."""
        return len(self.marks)

    def at(self, *marks: Mark) -> Positions:
        """The positions that show one of ``marks``, ascending."""
        return np.flatnonzero(np.isin(self.marks, marks)) if len(marks) > 1 else np.flatnonzero(self.marks == marks[0])


@dataclass(frozen=True, eq=False)
class Sample:
    """A drawn sequence: what it shows, and its true edges, typed by the names of ``Relation``."""

    observed: Observed
    truth: EdgeList


@dataclass(frozen=True)
class _Links:
    """Links of one relation, with the label that the later end shows."""

    later: Positions
    earlier: Positions
    labels: NDArray[np.int64]


def generate(length: int, rates: Rates, seed: int) -> Sample:
    """Draw a sequence of ``length`` positions and its graph G*.

    Each part draws from a stream of its own, so that changing one rate leaves the draws of the others as they were.

    Raises:
        InputError: for a length below 2 or above ``MAX_LENGTH``, or a negative seed.
    """
    if not 2 <= length <= MAX_LENGTH:
        raise InputError(f"the length must be an integer from 2 to {MAX_LENGTH}, got {length}")
    if seed < 0:
        raise InputError(f"the seed must be an integer of 0 or more, got {seed}")
    local, roles, instruction, topic, entity, noise = np.random.default_rng(seed).spawn(6)

    offsets = _draw_offsets(length, rates, local)
    preamble = min(rates.preamble, length // 2)
    anchors = _draw_instructions(preamble, rates, roles)
    topics, to_instruction, to_topic, mentions, rest = _draw_roles(preamble, length, rates, roles)

    links = {
        Relation.INSTRUCTION: _link_instructions(to_instruction, anchors, instruction),
        Relation.TOPIC: _link_topics(to_topic, topics, rates, topic),
        Relation.RECURRENCE: _link_mentions(mentions, rates, entity),
    }
    marks, labels = np.zeros(length, np.int8), np.full(length, -1, np.int32)
    for mark, positions, shown in (
        (Mark.INSTRUCTION, anchors, np.arange(len(anchors))),
        (Mark.TOPIC, topics, np.arange(len(topics)) % rates.live_topics),
        (Mark.INSTRUCTION_REFERENCE, links[Relation.INSTRUCTION].later, links[Relation.INSTRUCTION].labels),
        (Mark.TOPIC_REFERENCE, links[Relation.TOPIC].later, links[Relation.TOPIC].labels),
        (Mark.MENTION, mentions, links[Relation.RECURRENCE].labels),
    ):
        marks[positions], labels[positions] = mark, shown
    _disturb(marks, labels, preamble, rest, rates, noise)
    return Sample(Observed(marks, labels), _true_edges(length, offsets, links))


def _draw_offsets(length: int, rates: Rates, rng: np.random.Generator) -> NDArray[np.int8]:
    """For every position its true local offsets, ``(length, local_links)``, each row falling."""
    choices = list(combinations(range(rates.local_span, 0, -1), rates.local_links))
    table = np.array(choices, np.int8).reshape(len(choices), rates.local_links)
    return table[rng.integers(len(choices), size=length, dtype=np.int16)]


def _draw_instructions(preamble: int, rates: Rates, rng: np.random.Generator) -> Positions:
    return np.sort(rng.choice(preamble, size=min(rates.instructions, preamble), replace=False))


def _draw_roles(preamble: int, length: int, rates: Rates, rng: np.random.Generator) -> list[Positions]:
    """Sorted positions of topic anchors, instruction references, topic references, mentions, and of no role."""
    body = length - preamble
    shares = (rates.topic_anchors, rates.instruction_references, rates.topic_references, rates.mentions)
    ends = np.minimum(np.rint(np.cumsum(shares) * body).astype(np.int64), body)
    return [np.sort(part) for part in np.split(preamble + rng.permutation(body), ends)]


def _link_instructions(references: Positions, anchors: Positions, rng: np.random.Generator) -> _Links:
    if len(anchors) == 0:
        references = references[:0]
    chosen = rng.integers(max(len(anchors), 1), size=len(references))
    return _Links(references, anchors[chosen], chosen)


def _link_topics(references: Positions, topics: Positions, rates: Rates, rng: np.random.Generator) -> _Links:
    """Each reference to one of the live topics; one before the first topic depends on nothing and shows nothing."""
    opened = np.searchsorted(topics, references)
    draw = rng.random(len(references))
    kept = opened > 0
    references, opened, draw = references[kept], opened[kept], draw[kept]
    chosen = opened - 1 - (draw * np.minimum(opened, rates.live_topics)).astype(np.int64)
    return _Links(references, topics[chosen], chosen % rates.live_topics)


def _link_mentions(mentions: Positions, rates: Rates, rng: np.random.Generator) -> _Links:
    """Each mention to an earlier one of its entity (to itself if it is the first); labels are the entities."""
    count = len(mentions)
    entities = _draw_ranked(np.arange(1.0, rates.entities + 1) ** -rates.entity_skew, count, rng)
    weights = rates.recurrence_decay ** np.arange(rates.recurrence_depth)
    depth = 1 + _draw_ranked(weights, count, rng)
    order = np.argsort(entities, kind="stable")
    ordinal = np.arange(count) - np.searchsorted(entities[order], entities[order])
    antecedent = np.empty(count, np.int64)
    antecedent[order] = order[np.arange(count) - np.minimum(depth[order], ordinal)]
    return _Links(mentions, mentions[antecedent], entities)


def _draw_ranked(weights: NDArray[np.floating], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``count`` indices drawn in proportion to ``weights``."""
    bounds = np.cumsum(weights)
    return np.searchsorted(bounds[:-1], rng.random(count) * bounds[-1], side="right")


def _disturb(
    marks: NDArray[np.int8],
    labels: NDArray[np.int32],
    preamble: int,
    rest: Positions,
    rates: Rates,
    rng: np.random.Generator,
) -> None:
    """Hide marks of the body, and show some where nothing stands; in place."""
    marked = preamble + np.flatnonzero(marks[preamble:])
    hidden = marked[rng.random(len(marked)) < rates.hidden_marks]
    false = np.sort(rng.choice(rest, size=round(rates.false_marks * len(rest)), replace=False))
    kinds = {
        Mark.TOPIC: rates.live_topics,
        Mark.INSTRUCTION_REFERENCE: max(rates.instructions, 1),
        Mark.TOPIC_REFERENCE: rates.live_topics,
        Mark.MENTION: rates.entities,
    }
    kind = rng.integers(len(kinds), size=len(false))
    marks[hidden], labels[hidden] = Mark.NONE, -1
    marks[false] = np.array(list(kinds), np.int8)[kind]
    labels[false] = (rng.random(len(false)) * np.array(list(kinds.values()))[kind]).astype(np.int32)


def _true_edges(length: int, offsets: NDArray[np.int8], links: dict[Relation, _Links]) -> EdgeList:
    """The local edges and then the links, without the links that fall on a local edge or on their own start."""
    earlier = np.arange(length)[:, None] - offsets
    inside = earlier >= 0
    columns = [(np.nonzero(inside)[0], earlier[inside])]
    for link in links.values():
        distance = link.later - link.earlier
        own = (distance > 0) & ~np.any(offsets[link.later] == distance[:, None], axis=1)
        columns.append((link.later[own], link.earlier[own]))
    names = (Relation.LOCAL, *links)
    return EdgeList(
        np.concatenate([later for later, _ in columns]),
        np.concatenate([earlier for _, earlier in columns]),
        np.repeat(np.arange(len(names), dtype=np.int8), [len(later) for later, _ in columns]),
        tuple(str(name) for name in names),
        length,
    )
