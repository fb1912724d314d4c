r"""Text from a known dependency graph: a cue says what to read, the answer is what stands there, put together.

Position t of the simulation's graph G* becomes two tokens, a cue at 2t and an answer at 2t + 1. The cue shows the
position's mark and label and which local offsets are true for it; the answer is a content symbol, and is to be
predicted from the cue. A symbol c has two digits to an even base k, c = (c₁, c₂), and there are k² symbols. With a the
farther and b the nearer answer at the true local offsets, and z the answer at the far end of the position's link:

    ℓ = (a₁ + 1, b₂ + 1)                           a position without a link answers ℓ
    z + (ℓ₁ mod 2, ℓ₂ mod 2), digit by digit       a position with a link answers this; all sums mod k

A link goes to the instruction or the newest topic that shows the label, or to the newest mention of the entity.

Why this function. Every dependency decides a digit or its turn, so that all of them matter, and a model that reads one
local answer right gets a gradient for its digit, which a + b mod k² (uniform in a whatever b is) would withhold. The
steps of 1 keep the text moving: three live symbols that copy one another are soon one symbol, but few paths back to
the same source are of the same length. A link's answer is uniform unless z is read, so that a reader of the rest
stays at chance (1/k²), while z alone gives a quarter: enough to learn from. The turn by ℓ makes G* the graph to be
learned: were z copied, every earlier reference to the same anchor and every earlier mention of the entity would do as
well as the true end; as it is, one read in place of z gives a quarter at most, unless its own turn is undone.

Fresh content enters at *sources*: anchors, first mentions, the first ``local_span`` positions, and a share of those
without a mark. A source reads nothing; its cue shows no offsets, its answer is drawn evenly and is no target, and G*'s
edges from it are left out. Marks must tell the truth, so hidden and false ones are refused, and so is a recurrence
that a mention does not show (depth above 1).
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.edges import EdgeList
from sheafstate.errors import InputError
from sheafstate.simulation import Mark, Observed, Rates, Relation, Sample, generate

__all__ = ["DENSE_RATES", "Cue", "DependencyLanguage", "dependency_oracle"]

DENSE_RATES = Rates(
    preamble=8, instruction_references=0.1, topic_anchors=0.03, topic_references=0.1, mentions=0.1, entities=16
)
"""Rates for short texts: 512 tokens hold about 25 instruction, 21 topic and 14 recurrence edges, most beyond 32 tokens.

At the default rates they hold 4, 3 and less than one: enough to measure by in long texts, few to learn from.
"""

MAX_VOCABULARY = 2**16

ANCHOR_OF: dict[Mark, Mark] = {
    Mark.INSTRUCTION_REFERENCE: Mark.INSTRUCTION,
    Mark.TOPIC_REFERENCE: Mark.TOPIC,
    Mark.MENTION: Mark.MENTION,
}
"""What a position with this mark links to: the newest before it with that mark and the same label."""

_RELATION_OF: dict[Mark, Relation] = {
    Mark.NONE: Relation.LOCAL,
    Mark.INSTRUCTION_REFERENCE: Relation.INSTRUCTION,
    Mark.TOPIC_REFERENCE: Relation.TOPIC,
    Mark.MENTION: Relation.RECURRENCE,
}
_KINDS = np.array([list(Relation).index(_RELATION_OF[m]) if m in _RELATION_OF else -1 for m in Mark], np.int8)


@dataclass(frozen=True)
class Cue:
    """What a cue shows: mark, label (−1 without a mark), and the true local offsets, falling; none at a source."""

    mark: Mark
    label: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Plan:
    """A row before its answers; arrays over positions. Without a link ``links`` is the position itself."""

    sample: Sample
    cues: NDArray[np.int64]
    offsets: NDArray[np.int64]
    links: NDArray[np.int64]
    kinds: NDArray[np.int8]
    fresh: NDArray[np.int64]


@dataclass(frozen=True)
class DependencyLanguage:
    """Cues and answers over graphs G* drawn at ``rates``.

    Attributes:
        rates: how graphs are drawn; the text has two tokens for each position of the graph.
        symbols: number of content symbols, k² for an even k. Tokens below it are symbols, the others cues.
        sources: share of the positions without a mark that bring fresh content.

    Raises:
        InputError: for another number of symbols, a share out of range, rates that leave an answer undetermined
            (hidden or false marks, recurrence deeper than 1), other than 1 or 2 local links, or too many cues.
    """

    rates: Rates = field(default_factory=Rates)
    symbols: int = 16
    sources: float = 0.1

    def __post_init__(self) -> None:
        if self.symbols < 4 or self.base**2 != self.symbols or self.base % 2:
            raise InputError(f"symbols must be the square of an even number, got {self.symbols}")
        if not 0 <= self.sources <= 1:
            raise InputError(f"sources must be a share from 0 to 1, got {self.sources}")
        for name, value in {"hidden_marks": 0, "false_marks": 0, "recurrence_depth": 1}.items():
            if getattr(self.rates, name) != value:
                raise InputError(f"{name} must be {value}, or what is shown does not say what to read: {self.rates}")
        if self.rates.local_links not in (1, 2):
            raise InputError(f"local_links must be 1 or 2, got {self.rates.local_links}")
        if self.vocab_size > MAX_VOCABULARY:
            raise InputError(f"these rates need {self.vocab_size} tokens; at most {MAX_VOCABULARY} are allowed")

    @property
    def base(self) -> int:
        """k, the base of a symbol's two digits."""
        return int(np.sqrt(self.symbols))

    @property
    def vocab_size(self) -> int:
        """Number of tokens: symbols, then for each choice of offsets (none, then each) every mark with every label."""
        return self.symbols + (1 + len(self._choices)) * int(self._first_label[-1])

    @cached_property
    def cues(self) -> tuple[Cue, ...]:
        """What token ``symbols + i`` shows, for every i."""
        marks = [(mark, label) for mark, count in self._labels.items() for label in range(count)]
        choices: list[tuple[int, ...]] = [(), *self._choices]
        return tuple(
            Cue(mark, -1 if mark is Mark.NONE else label, offsets) for offsets in choices for mark, label in marks
        )

    def draw(self, rows: int, length: int, seed: int) -> Examples:
        """Draw texts of ``length`` tokens; row i is the same however many rows are drawn.

        ``kinds`` are places in ``Relation``: the link's relation where there is a link, else local.

        Raises:
            InputError: for no rows, an odd length or one below 4, or a negative seed.
        """
        if rows < 1:
            raise InputError(f"at least one row must be drawn, got {rows}")
        plans = [self._plan(length, seed, row) for row in range(rows)]
        cues, answers = np.stack([plan.cues for plan in plans]), self._answer(plans)
        targets, kinds = np.full((rows, length), IGNORED, np.int64), np.full((rows, length), -1, np.int8)
        kinds[:, ::2] = np.stack([plan.kinds for plan in plans])
        targets[:, ::2] = np.where(kinds[:, ::2] >= 0, answers, IGNORED)
        return Examples(np.stack((cues, answers), axis=2).reshape(rows, length), targets, kinds)

    def truth(self, length: int, seed: int, row: int = 0) -> EdgeList:
        """The true edges of a row of ``draw``: from the cue that predicts to the answers that it must read.

        Typed as in G*: a pair that is both local and a link is local.
        """
        plan = self._plan(length, seed, row)
        edges = plan.sample.truth
        edges = edges.select(plan.kinds[edges.later] >= 0)
        return EdgeList(2 * edges.later, 2 * edges.earlier + 1, edges.types, edges.names, length)

    def combine(
        self, far: NDArray[np.int64], near: NDArray[np.int64], link: NDArray[np.int64], linked: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """The answer from the answers at the dependencies, of any one shape; ``link`` counts where ``linked``."""
        k = self.base
        high, low = (far // k + 1) % k, (near + 1) % k
        turned = (link // k + high % 2) % k * k + (link + low % 2) % k
        return np.where(linked, turned, high * k + low)

    @property
    def _choices(self) -> list[tuple[int, ...]]:
        return list(combinations(range(self.rates.local_span, 0, -1), self.rates.local_links))

    @property
    def _labels(self) -> dict[Mark, int]:
        """How many labels each mark has."""
        instructions, topics = self.rates.instructions, self.rates.live_topics
        return dict(zip(Mark, (1, instructions, topics, instructions, topics, self.rates.entities), strict=True))

    @property
    def _first_label(self) -> NDArray[np.int64]:
        """The number of each mark's first label among all marks' labels, and their total."""
        return np.cumsum([0, *self._labels.values()])

    def _plan(self, length: int, seed: int, row: int) -> _Plan:
        if length < 4 or length % 2:
            raise InputError(f"a text needs an even length of 4 or more, got {length}")
        if seed < 0 or row < 0:
            raise InputError(f"seed and row must be integers of 0 or more, got {seed} and {row}")
        sequence = np.random.SeedSequence(seed, spawn_key=(row,))
        sample = generate(length // 2, self.rates, int(sequence.generate_state(1)[0]))
        rng = np.random.default_rng(sequence)
        marks, labels = sample.observed.marks, sample.observed.labels

        links = _links(sample.observed)
        linked = links < np.arange(len(marks))
        plain = (marks == Mark.NONE) & (rng.random(len(marks)) >= self.sources)
        reads = (linked | plain) & (np.arange(len(marks)) >= self.rates.local_span)

        local = sample.truth.of_type(str(Relation.LOCAL))
        offsets = np.zeros((len(marks), self.rates.local_links), np.int64)
        full = local.later >= self.rates.local_span
        offsets[self.rates.local_span :] = (local.later - local.earlier)[full].reshape(-1, self.rates.local_links)
        choice = 1 + np.all(offsets[:, None] == np.array(self._choices), axis=2).argmax(axis=1)
        shown = self._first_label[marks] + np.maximum(labels, 0)
        return _Plan(
            sample,
            self.symbols + np.where(reads, choice, 0) * self._first_label[-1] + shown,
            offsets,
            links,
            np.where(reads, _KINDS[marks], -1).astype(np.int8),
            rng.integers(self.symbols, size=len(marks)),
        )

    def _answer(self, plans: list[_Plan]) -> NDArray[np.int64]:
        """Every position's answer in turn, all rows at once, ``(rows, positions)``."""
        row, columns = np.arange(len(plans)), np.arange(len(plans[0].cues))
        answers = np.stack([plan.fresh for plan in plans])
        links, reads = np.stack([plan.links for plan in plans]), np.stack([plan.kinds for plan in plans]) >= 0
        offsets = np.stack([plan.offsets for plan in plans])
        far, near, linked = columns - offsets[..., 0], columns - offsets[..., -1], links < columns
        for t in columns[self.rates.local_span :]:
            a, b, z = (answers[row, places[:, t]] for places in (far, near, links))
            answers[:, t] = np.where(reads[:, t], self.combine(a, b, z, linked[:, t]), answers[:, t])
        return answers


def dependency_oracle(
    language: DependencyLanguage, input_ids: NDArray[np.int64], window: int | None = None
) -> NDArray[np.int64]:
    """The answer at every cue that reads, −100 elsewhere, ``(rows, length)``, from the tokens alone.

    Args:
        language: what wrote the text.
        input_ids: the text, ``(rows, length)``.
        window: with one, only that many tokens up to the cue are read; whatever stands before counts as symbol 0.
    """
    answers = np.full_like(input_ids, IGNORED)
    for row, tokens in enumerate(input_ids):
        newest: dict[tuple[Mark, int], int] = {}
        reading: list[tuple[int, int, int, int]] = []
        for at, token in enumerate(tokens[::2].tolist()):
            cue = language.cues[token - language.symbols]
            link = newest.get((ANCHOR_OF[cue.mark], cue.label), -1) if cue.mark in ANCHOR_OF else -1
            newest[cue.mark, cue.label] = at
            if cue.offsets:
                reading.append((at, at - cue.offsets[0], at - cue.offsets[-1], link))
        places, *ends = 2 * np.array(reading, np.int64).reshape(-1, 4).T
        first = -1 if window is None else places - window
        far, near, linked = (np.where(end + 1 > first, tokens[end + 1], 0) for end in ends)
        answers[row, places] = language.combine(far, near, linked, ends[-1] >= 0)
    return answers


def _links(observed: Observed) -> NDArray[np.int64]:
    """Where each position's link ends, by ``ANCHOR_OF``; the position itself where it has none."""
    length = observed.length
    links = np.arange(length)
    for mark, anchor in ANCHOR_OF.items():
        later, earlier = observed.at(mark), observed.at(anchor)
        # By label, then position, the newest anchor stands just before where its reader would.
        keys = np.sort(observed.labels[earlier].astype(np.int64) * length + earlier)
        own = observed.labels[later].astype(np.int64) * length
        found = np.concatenate(([-1], keys))[np.searchsorted(keys, own + later)]
        links[later] = np.where(found >= own, found - own, later)
    return links
