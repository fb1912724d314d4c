"""Every rate of the generator and every budget of the sheaf site, as validated records."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from sheafstate.errors import InputError

__all__ = ["MAX_LENGTH", "Budget", "Rates", "SimulationConfig"]

MAX_LENGTH = 2**26
"""Longest sequence; a run takes about 300 bytes a position at its peak, 20 GB for this one."""

MAX_COUNT = 2**20
"""Largest whole number of a rate or a budget."""

MAX_LOCAL_SPAN = 16  # the generator holds a table of all C(span, links) choices of offsets


@dataclass(frozen=True)
class Rates:
    """How a sequence and its dependency graph G* are drawn.

    Rates are shares of the positions of the body, exact up to rounding: the draw decides which positions, not how
    many. A position plays one role at most.

    Attributes:
        local_links: true edges of every position to positions just before it.
        local_span: how far back these reach; which of the ``local_span`` offsets are true is drawn per position.
        preamble: positions at the start that hold the instructions and play no other role.
        instructions: instruction anchors in the preamble.
        instruction_references: share of positions that depend on one of the instructions, drawn evenly.
        topic_anchors: share of positions that open a topic.
        live_topics: a topic reference depends on one of this many newest topics, drawn evenly.
        topic_references: share of positions that depend on a topic.
        mentions: share of positions that mention an entity; each but the entity's first depends on an earlier one.
        entities: number of entities.
        entity_skew: exponent s of the entities' frequencies, the k-th most frequent having k^−s; 0 is even.
        recurrence_depth: a mention depends on one of the entity's this many newest mentions.
        recurrence_decay: the d-th newest is chosen with probability ∝ this^(d − 1).
        hidden_marks: share of the body's anchors, references and mentions that do not show what they are.
        false_marks: share of positions without a role that show a mark all the same, its kind and label drawn evenly.
    """

    local_links: int = 2
    local_span: int = 3
    preamble: int = 64
    instructions: int = 4
    instruction_references: float = 0.024
    topic_anchors: float = 0.004
    live_topics: int = 4
    topic_references: float = 0.024
    mentions: float = 0.027
    entities: int = 64
    entity_skew: float = 1.0
    recurrence_depth: int = 1
    recurrence_decay: float = 0.5
    hidden_marks: float = 0.0
    false_marks: float = 0.0

    def __post_init__(self) -> None:
        _check_integers(self, {"live_topics": 1, "entities": 1, "recurrence_depth": 1, "local_span": 1})
        for name in _names(self, float) - {"entity_skew"}:
            _require(0 <= getattr(self, name) <= 1, name, getattr(self, name), "a share from 0 to 1")
        _require(0 <= self.entity_skew <= 10, "entity_skew", self.entity_skew, "a number from 0 to 10")
        _require(self.local_span <= MAX_LOCAL_SPAN, "local_span", self.local_span, f"at most {MAX_LOCAL_SPAN}")
        _require(self.local_links <= self.local_span, "local_links", self.local_links, "at most local_span")
        _require(self.instructions <= self.preamble, "instructions", self.instructions, "at most preamble")
        roles = self.instruction_references + self.topic_anchors + self.topic_references + self.mentions
        _require(roles <= 1, "the sum of the rates of the roles", roles, "at most 1")


@dataclass(frozen=True)
class Budget:
    """The degrees of the sheaf site's covers: how much each may hold, whatever the text needs.

    Attributes:
        window: w, the positions just before that every position is linked to.
        kept_anchors: s, the first anchors of the sequence, held for good.
        recent_anchors: r_a, the newest anchors after these that are held.
        recent_mentions: r, the newest mentions of the same entity that a mention is linked to.
    """

    window: int = 3
    kept_anchors: int = 4
    recent_anchors: int = 4
    recent_mentions: int = 1

    def __post_init__(self) -> None:
        _check_integers(self, {})


@dataclass(frozen=True)
class SimulationConfig:
    """A generator, a sheaf site's budget, and the width of the windowed site beside it."""

    rates: Rates = field(default_factory=Rates)
    budget: Budget = field(default_factory=Budget)
    baseline_window: int = 8

    def __post_init__(self) -> None:
        _check_integers(self, {})

    def as_dict(self) -> dict[str, object]:
        """Nested plain values, for JSON."""
        return asdict(self)


def _names(record: object, kind: type) -> set[str]:
    return {f.name for f in fields(record) if f.type is kind}  # type: ignore[arg-type]


def _check_integers(record: object, lowest: Mapping[str, int]) -> None:
    for name in _names(record, int):
        value, least = getattr(record, name), lowest.get(name, 0)
        whole = isinstance(value, int) and not isinstance(value, bool)
        _require(whole and value >= least, name, value, f"an integer of {least} or more")
        _require(value <= MAX_COUNT, name, value, f"at most {MAX_COUNT}")


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:
        raise InputError(f"{name} must be {allowed}, got {value!r}")
