"""What is drawn is what the rates say, and every true edge has its reason."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.edges import num_edges
from sheafstate.errors import InputError
from sheafstate.simulation import MAX_LENGTH, Mark, Rates, Relation, Sample, generate

from .strategies import LENGTHS, SEEDS, rates


def rows(sample: Sample, relation: Relation) -> list[tuple[int, int]]:
    edges = sample.truth.of_type(relation)
    return list(zip(edges.later.tolist(), edges.earlier.tolist(), strict=True))


def same(a: Sample, b: Sample, *, observed: bool = True, truth: bool = True) -> bool:
    equal = True
    if observed:
        equal &= np.array_equal(a.observed.marks, b.observed.marks)
        equal &= np.array_equal(a.observed.labels, b.observed.labels)
    if truth:
        equal &= np.array_equal(a.truth.keys, b.truth.keys) and np.array_equal(a.truth.types, b.truth.types)
    return bool(equal)


@given(LENGTHS, rates(), SEEDS)
def test_true_edges_are_distinct_and_go_back(length: int, rates: Rates, seed: int) -> None:
    truth = generate(length, rates, seed).truth
    assert truth.length == length
    assert truth.names == ("local", "instruction", "topic", "recurrence")
    assert num_edges(truth) == len(truth)
    assert np.all(truth.earlier < truth.later)
    assert np.all(truth.earlier >= 0)


@given(LENGTHS, rates(st.sampled_from([0.0, 0.3])), SEEDS)
def test_a_seed_says_everything(length: int, rates: Rates, seed: int) -> None:
    assert same(generate(length, rates, seed), generate(length, rates, seed))


def test_another_seed_says_something_else() -> None:
    first, second = generate(2000, Rates(), 0), generate(2000, Rates(), 1)
    assert not same(first, second, truth=False)
    assert not same(first, second, observed=False)


@given(LENGTHS, rates(), SEEDS)
def test_local_edges(length: int, rates: Rates, seed: int) -> None:
    edges = rows(generate(length, rates, seed), Relation.LOCAL)
    assert all(1 <= t - p <= rates.local_span for t, p in edges)
    degree = Counter(t for t, _ in edges)
    assert all(degree[t] == rates.local_links for t in range(rates.local_span, length))
    assert all(degree[t] <= min(t, rates.local_links) for t in range(length))


def test_local_offsets_are_drawn_evenly() -> None:
    distances = Counter(t - p for t, p in rows(generate(30_000, Rates(), 0), Relation.LOCAL))
    assert set(distances) == {1, 2, 3}
    assert all(abs(count - 20_000) < 600 for count in distances.values())


@given(LENGTHS, rates(), SEEDS)
def test_long_links_lead_to_what_their_label_says(length: int, rates: Rates, seed: int) -> None:
    sample = generate(length, rates, seed)
    marks, labels = sample.observed.marks.tolist(), sample.observed.labels.tolist()
    topics = [t for t in range(length) if marks[t] == Mark.TOPIC]
    for t, p in rows(sample, Relation.INSTRUCTION):
        assert (marks[t], marks[p]) == (Mark.INSTRUCTION_REFERENCE, Mark.INSTRUCTION)
        assert labels[t] == labels[p]
    for t, p in rows(sample, Relation.TOPIC):
        assert marks[t] == Mark.TOPIC_REFERENCE
        assert labels[t] == labels[p]
        assert p in [a for a in topics if a < t][-rates.live_topics :]
    for t, p in rows(sample, Relation.RECURRENCE):
        earlier = [m for m in range(t) if marks[m] == Mark.MENTION and labels[m] == labels[t]]
        assert marks[t] == Mark.MENTION
        assert p in earlier[-rates.recurrence_depth :]


@given(LENGTHS, rates(), SEEDS)
def test_every_reference_depends_on_something(length: int, rates: Rates, seed: int) -> None:
    """A reference's edge is there, be it as a local one; so is that of every mention but an entity's first."""
    sample = generate(length, rates, seed)
    marks, labels = sample.observed.marks, sample.observed.labels
    local = sample.truth.of_type(Relation.LOCAL)
    for mark, relation in (
        (Mark.INSTRUCTION_REFERENCE, Relation.INSTRUCTION),
        (Mark.TOPIC_REFERENCE, Relation.TOPIC),
        (Mark.MENTION, Relation.RECURRENCE),
    ):
        shown = set(np.flatnonzero(marks == mark).tolist())
        if mark is Mark.MENTION:
            _, first = np.unique(labels[sorted(shown)], return_index=True)
            shown -= {sorted(shown)[i] for i in first}
        linked = {t for t, _ in rows(sample, relation)}
        assert linked <= shown
        assert shown - linked <= set(local.later.tolist())


def test_rates_are_shares_of_the_body() -> None:
    rates = Rates(topic_anchors=0.01, instruction_references=0.02, topic_references=0.03, mentions=0.04)
    sample = generate(10_064, rates, 3)
    count = Counter(sample.observed.marks.tolist())
    assert count[Mark.INSTRUCTION] == 4
    assert count[Mark.TOPIC] == 100
    assert count[Mark.INSTRUCTION_REFERENCE] == 200
    assert count[Mark.MENTION] == 400
    assert 290 <= count[Mark.TOPIC_REFERENCE] <= 300  # those before the first topic refer to nothing
    assert np.flatnonzero(sample.observed.marks == Mark.INSTRUCTION).max() < 64
    assert np.flatnonzero(sample.observed.marks > Mark.INSTRUCTION).min() >= 64
    assert np.all((sample.observed.labels >= 0) == (sample.observed.marks != Mark.NONE))


def test_live_topics_and_instructions_are_drawn_evenly() -> None:
    sample = generate(200_000, Rates(), 0)
    topics = np.flatnonzero(sample.observed.marks == Mark.TOPIC)
    later, earlier = np.array(rows(sample, Relation.TOPIC)).T
    age = np.searchsorted(topics, later) - 1 - np.searchsorted(topics, earlier)
    counts = np.bincount(age)
    assert len(counts) == 4
    assert np.all(np.abs(counts / counts.sum() - 0.25) < 0.02)
    chosen = np.bincount(sample.observed.labels[sample.observed.marks == Mark.INSTRUCTION_REFERENCE])
    assert np.all(np.abs(chosen / chosen.sum() - 0.25) < 0.02)


def test_recurrence_depth_falls_off_by_the_decay() -> None:
    rates = Rates(recurrence_depth=3, recurrence_decay=0.5, entities=4)
    sample = generate(200_000, rates, 0)
    labels = sample.observed.labels
    mentions = np.flatnonzero(sample.observed.marks == Mark.MENTION)
    depths: Counter[int] = Counter()
    for entity in range(4):
        own = mentions[labels[mentions] == entity]
        place = {position: i for i, position in enumerate(own.tolist())}
        depths.update(place[t] - place[p] for t, p in rows(sample, Relation.RECURRENCE) if t in place)
    total = sum(depths.values())
    assert [round(depths[d] / total, 1) for d in (1, 2, 3)] == [0.6, 0.3, 0.1]


def test_entities_follow_their_skew() -> None:
    sample = generate(200_000, Rates(entities=3, entity_skew=1.0), 0)
    counts = np.bincount(sample.observed.labels[sample.observed.marks == Mark.MENTION])
    assert counts / counts.sum() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)


def test_noise_touches_what_is_seen_and_not_what_is_true() -> None:
    clean, seed = Rates(), 5
    hidden, false = replace(clean, hidden_marks=0.25), replace(clean, false_marks=0.1)
    sample = generate(20_000, clean, seed)
    marked = sample.observed.marks != Mark.NONE

    fewer = generate(20_000, hidden, seed)
    assert same(sample, fewer, observed=False)
    assert np.all(marked[fewer.observed.marks != Mark.NONE])
    assert np.mean(fewer.observed.marks[marked] == Mark.NONE) == pytest.approx(0.25, abs=0.03)
    assert np.count_nonzero(fewer.observed.marks == Mark.INSTRUCTION) == 4
    assert np.all((fewer.observed.labels >= 0) == (fewer.observed.marks != Mark.NONE))

    more = generate(20_000, false, seed)
    assert same(sample, more, observed=False)
    assert np.array_equal(more.observed.marks[marked], sample.observed.marks[marked])
    invented = more.observed.marks[~marked]
    assert np.mean(invented != Mark.NONE) == pytest.approx(0.1, abs=0.01)
    assert set(np.unique(invented)) == {0, 2, 3, 4, 5}


def test_what_a_rate_does_not_concern_stays() -> None:
    first = generate(5000, Rates(), 1)
    second = generate(5000, Rates(entities=7, recurrence_depth=3, hidden_marks=0.5), 1)
    for relation in (Relation.LOCAL, Relation.INSTRUCTION, Relation.TOPIC):
        assert rows(first, relation) == rows(second, relation)


@pytest.mark.parametrize("length", [0, -5, 1, MAX_LENGTH + 1])
def test_impossible_lengths(length: int) -> None:
    with pytest.raises(InputError, match=f"from 2 to {MAX_LENGTH}, got {length}"):
        generate(length, Rates(), 0)


def test_a_negative_seed() -> None:
    with pytest.raises(InputError, match="0 or more, got -1"):
        generate(10, Rates(), -1)
