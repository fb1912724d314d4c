"""The sheaf site is what the cover laws say, and sees nothing of G*."""

from collections import defaultdict, deque
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.edges import EdgeList, coverage, coverage_by_type, degrees
from sheafstate.patches import PatchType
from sheafstate.simulation import (
    COVERS,
    Budget,
    Mark,
    Observed,
    Rates,
    Relation,
    Sample,
    SimulationConfig,
    generate,
    measure,
    sheaf_site,
)

from .strategies import LENGTHS, SEEDS, budgets, rates

NOISE = st.sampled_from([0.0, 0.1, 0.4])
ENOUGH = Budget(window=6, kept_anchors=6, recent_anchors=5, recent_mentions=4)  # for every rate in `strategies`


def read_along(observed: Observed, budget: Budget) -> set[tuple[int, int, str]]:
    """The same laws for a reader who goes from position to position and keeps only what the budget lets him."""
    kept: list[int] = []
    recent: deque[int] = deque(maxlen=budget.recent_anchors)
    mentions: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=budget.recent_mentions))
    anchor_of = {Mark.INSTRUCTION_REFERENCE: Mark.INSTRUCTION, Mark.TOPIC_REFERENCE: Mark.TOPIC}
    names = {Mark.INSTRUCTION_REFERENCE: "instruction", Mark.TOPIC_REFERENCE: "topic"}
    edges = set()
    for t, (mark, label) in enumerate(zip(observed.marks.tolist(), observed.labels.tolist(), strict=True)):
        edges |= {(t, p, "local") for p in range(max(t - budget.window, 0), t)}
        if mark in anchor_of:
            held = [p for p in [*kept, *recent] if (observed.marks[p], observed.labels[p]) == (anchor_of[mark], label)]
            edges |= {(t, p, names[mark]) for p in held}
        elif mark == Mark.MENTION:
            edges |= {(t, p, "recurrence") for p in mentions[label]}
            mentions[label].append(t)
        elif mark in (Mark.INSTRUCTION, Mark.TOPIC):
            (kept if len(kept) < budget.kept_anchors else recent).append(t)
    return edges


def triples(site: EdgeList) -> list[tuple[int, int, str]]:
    named = [site.names[code] for code in site.types]
    return list(zip(site.later.tolist(), site.earlier.tolist(), named, strict=True))


@given(LENGTHS, rates(NOISE), SEEDS, budgets)
def test_the_site_is_that_of_a_reader(length: int, rates: Rates, seed: int, budget: Budget) -> None:
    observed = generate(length, rates, seed).observed
    listed = triples(sheaf_site(observed, budget))
    assert len(listed) == len(set(listed))
    assert set(listed) == read_along(observed, budget)


@given(LENGTHS, rates(NOISE), SEEDS, budgets)
def test_degree_is_bounded_whatever_the_text(length: int, rates: Rates, seed: int, budget: Budget) -> None:
    site = sheaf_site(generate(length, rates, seed).observed, budget)
    bound = budget.window + max(budget.kept_anchors + budget.recent_anchors, budget.recent_mentions)
    assert degrees(site).max() <= bound


@given(LENGTHS, rates(), SEEDS)
def test_a_budget_that_reaches_as_far_as_the_text_holds_everything(length: int, rates: Rates, seed: int) -> None:
    sample = generate(length, rates, seed)
    covered = coverage(sheaf_site(sample.observed, ENOUGH), sample.truth)
    assert covered == 1 or len(sample.truth) == 0


TEXT = Rates(local_links=2, local_span=4, instructions=4, live_topics=5, recurrence_depth=3)
EXACT = Budget(window=4, kept_anchors=4, recent_anchors=5, recent_mentions=3)
SERVED = {
    "window": Relation.LOCAL,
    "kept_anchors": Relation.INSTRUCTION,
    "recent_anchors": Relation.TOPIC,
    "recent_mentions": Relation.RECURRENCE,
}


@pytest.mark.parametrize("field", SERVED)
def test_one_less_than_the_text_needs_loses_that_relation_alone(field: str) -> None:
    sample = generate(20_000, TEXT, 0)
    assert coverage(sheaf_site(sample.observed, EXACT), sample.truth) == 1
    less = replace(EXACT, **{field: getattr(EXACT, field) - 1})
    by_type = coverage_by_type(sheaf_site(sample.observed, less), sample.truth)
    assert 0.5 < by_type.pop(SERVED[field]) < 0.95
    assert all(share == 1 for share in by_type.values())


@given(LENGTHS, rates(NOISE), SEEDS, budgets, st.sampled_from([f.name for f in fields(Budget)]))
def test_a_larger_budget_only_adds(length: int, rates: Rates, seed: int, budget: Budget, field: str) -> None:
    observed = generate(length, rates, seed).observed
    larger = replace(budget, **{field: getattr(budget, field) + 1})
    assert set(triples(sheaf_site(observed, budget))) <= set(triples(sheaf_site(observed, larger)))


def test_the_site_is_blind_to_which_dependency_is_true() -> None:
    """Two texts that look alike and depend on different things have one site."""
    config = SimulationConfig(budget=Budget(recent_mentions=4))
    plain = generate(4000, Rates(), 2)
    other = generate(4000, Rates(local_links=1, recurrence_depth=4), 2)
    assert np.array_equal(plain.observed.marks, other.observed.marks)
    assert not np.array_equal(plain.truth.keys, other.truth.keys)
    sites = [triples(sheaf_site(sample.observed, config.budget)) for sample in (plain, other)]
    assert sites[0] == sites[1]


@given(SEEDS)
def test_measuring_against_a_permuted_graph_leaves_the_site(shuffle: int) -> None:
    sample, config = generate(300, Rates(), 0), SimulationConfig()
    relabel = np.random.default_rng(shuffle).permutation(300)
    ends = np.sort(relabel[np.stack([sample.truth.later, sample.truth.earlier])], axis=0)
    permuted = EdgeList(ends[1], ends[0], sample.truth.types, sample.truth.names, 300)
    ours, theirs = measure(sample, 0, config), measure(Sample(sample.observed, permuted), 0, config)
    assert ours.sites["sheaf"].edges == theirs.sites["sheaf"].edges
    assert theirs.sites["sheaf"].coverage < 0.5 < ours.sites["sheaf"].coverage
    assert {f.name for f in fields(Observed)} == {"marks", "labels"}


def test_every_relation_is_served_by_a_patch_type() -> None:
    assert set(COVERS) == set(Relation)
    assert set(COVERS.values()) == {PatchType.LOCAL, PatchType.INSTRUCTION, PatchType.RETRIEVAL}
