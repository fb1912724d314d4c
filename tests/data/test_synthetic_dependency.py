"""The dependency language: its answers follow from its true edges, from all of them, and from nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import IGNORED
from sheafstate.data.synthetic import DENSE_RATES, DependencyLanguage, Examples, dependency_oracle
from sheafstate.edges import num_edges
from sheafstate.errors import InputError
from sheafstate.simulation import Mark, Rates, Relation

from ..simulation.strategies import SEEDS, rates

LANGUAGE = DependencyLanguage()
RELATIONS = list(Relation)
LENGTHS = st.integers(2, 200).map(lambda positions: 2 * positions)


@st.composite
def languages(draw) -> DependencyLanguage:
    drawn = draw(rates())
    links = draw(st.integers(1, min(2, drawn.local_span)))
    shown = replace(drawn, local_links=links, recurrence_depth=1)
    return DependencyLanguage(shown, draw(st.sampled_from([4, 16, 36])), draw(st.sampled_from([0.0, 0.1, 1.0])))


@pytest.fixture(scope="module")
def text() -> Examples:
    return LANGUAGE.draw(40, 2_048, seed=0)


def long_links(rows: int, length: int, seed: int) -> dict[int, list[tuple[int, int]]]:
    """Row and token of what is linked beyond 32 tokens, by kind.

    Of one anchor's references the first alone: what one read at chance hits, the others hit with it.
    """
    found: dict[int, list[tuple[int, int]]] = {kind: [] for kind in (1, 2, 3)}
    for row in range(rows):
        far = LANGUAGE.truth(length, seed, row).beyond(32)
        first = far.select(np.sort(np.unique(far.earlier, return_index=True)[1]))
        for token, kind in zip(first.later.tolist(), first.types.tolist(), strict=True):
            found[kind].append((row, token))
    return found


@given(languages(), st.integers(1, 3), LENGTHS, SEEDS)
def test_the_oracle_answers_everything(language: DependencyLanguage, rows: int, length: int, seed: int) -> None:
    text = language.draw(rows, length, seed)
    np.testing.assert_array_equal(dependency_oracle(language, text.input_ids), text.targets)


@given(languages(), st.integers(1, 3), LENGTHS, SEEDS)
def test_rows_are_cues_and_answers(language: DependencyLanguage, rows: int, length: int, seed: int) -> None:
    text = language.draw(rows, length, seed)
    assert text.input_ids.shape == text.targets.shape == text.kinds.shape == (rows, length)
    assert (text.input_ids.dtype, text.targets.dtype, text.kinds.dtype) == (np.int64, np.int64, np.int8)
    assert len(language.cues) + language.symbols == language.vocab_size
    assert len(set(language.cues)) == len(language.cues)
    cues, answers = text.input_ids[:, ::2], text.input_ids[:, 1::2]
    assert cues.min() >= language.symbols
    assert cues.max() < language.vocab_size
    assert answers.min() >= 0
    assert answers.max() < language.symbols
    read = text.kinds[:, ::2] >= 0
    np.testing.assert_array_equal(text.targets[:, ::2], np.where(read, answers, IGNORED))
    assert np.all(text.targets[:, 1::2] == IGNORED)
    assert np.all(text.kinds[:, 1::2] == -1)


@given(languages(), LENGTHS, SEEDS)
def test_true_edges_lead_from_what_is_predicted_to_answers(language, length: int, seed: int) -> None:
    text, truth = language.draw(1, length, seed), language.truth(length, seed)
    assert truth.names == tuple(map(str, Relation))
    assert truth.length == length
    assert num_edges(truth) == len(truth)
    assert np.all(truth.later % 2 == 0)
    assert np.all(truth.earlier % 2 == 1)
    np.testing.assert_array_equal(np.unique(truth.later), np.flatnonzero(text.targets[0] != IGNORED))
    far = truth.types > 0
    np.testing.assert_array_equal(text.kinds[0, truth.later[far]], truth.types[far])


@pytest.mark.parametrize("seed", range(2))
def test_every_true_edge_matters_and_no_other(seed: int) -> None:
    """Put every other symbol at a token: the oracle's answers that change are those of the true edges to it, all."""
    shares = {"topic_anchors": 0.05, "topic_references": 0.1, "instruction_references": 0.1, "mentions": 0.1}
    language = DependencyLanguage(Rates(preamble=8, entities=4, **shares))
    ids, truth = language.draw(1, 200, seed).input_ids, language.truth(200, seed)
    answers = dependency_oracle(language, ids)
    found = set()
    for token in range(1, 200, 2):
        others = np.repeat(ids, language.symbols, axis=0)
        others[:, token] = np.arange(language.symbols)
        changed = (dependency_oracle(language, others) != answers).any(axis=0)
        found |= {(later, token) for later in np.flatnonzero(changed).tolist()}
    assert found == set(zip(truth.later.tolist(), truth.earlier.tolist(), strict=True))
    assert set(truth.types.tolist()) == {0, 1, 2, 3}


def test_a_change_at_a_link_always_changes_the_answer() -> None:
    """What makes the answer uniform to whoever does not read the link."""
    language = DependencyLanguage(DENSE_RATES)
    others = np.repeat(language.draw(1, 512, seed=0).input_ids, 16, axis=0)
    far = language.truth(512, seed=0).beyond(32)
    assert set(far.types.tolist()) == {1, 2, 3}
    for later, earlier in zip(far.later, far.earlier, strict=True):
        turned = others.copy()
        turned[:, earlier] = np.arange(16)
        assert len({*dependency_oracle(language, turned)[:, later].tolist()}) == 16


@pytest.mark.parametrize(
    ("far", "near", "link", "answer"),
    [
        ((1, 0), (3, 2), None, (2, 3)),
        ((3, 1), (0, 3), None, (0, 0)),
        ((1, 0), (3, 2), (3, 3), (3, 0)),
        ((0, 0), (0, 1), (3, 3), (0, 3)),
    ],
)
def test_answers_by_hand(far, near, link, answer) -> None:
    """Digits to the base 4: a step from the dependencies, or the link's digits turned by the parity of these."""
    symbols = [np.array(4 * high + low) for high, low in (far, near, link or (0, 0))]
    assert divmod(int(LANGUAGE.combine(*symbols, np.array(link is not None))), 4) == answer


def test_a_window_is_at_chance_on_long_links(text: Examples) -> None:
    """All local answers, and one in sixteen of those whose link the window does not hold."""
    right = dependency_oracle(LANGUAGE, text.input_ids, window=32) == text.targets
    assert right[text.kinds == 0].all()
    for kind, places in long_links(40, 2_048, seed=0).items():
        hits = right[tuple(np.transpose(places))]
        assert len(hits) > 100
        assert abs(hits.mean() - 1 / 16) < 4 * np.sqrt(1 / 16 * 15 / 16 / len(hits)), RELATIONS[kind]


def test_what_is_near_says_nothing_of_a_long_link(text: Examples) -> None:
    """Beside any of the last answers, every symbol is as likely as any other (χ² of a table of 16 × 16)."""
    row, token = np.transpose([place for places in long_links(40, 2_048, seed=0).values() for place in places])
    for offset in (1, 2, 3):
        table = np.zeros((16, 16))
        np.add.at(table, (text.input_ids[row, token + 1 - 2 * offset], text.targets[row, token]), 1)
        expected = table.sum(axis=1, keepdims=True) / 16
        chi_squared = ((table - expected) ** 2 / expected).sum()
        assert abs(chi_squared - 240) < 4 * np.sqrt(2 * 240)


def test_symbols_are_even_and_offsets_must_be_read(text: Examples) -> None:
    """No symbol is more frequent, and a reader of fixed offsets is far from right where others are true."""
    answers = text.input_ids[:, 1::2]
    share = np.bincount(answers.ravel(), minlength=16) / answers.size
    assert np.all(np.abs(16 * share - 1) < 0.1)
    cues = [LANGUAGE.cues[token - 16] for token in text.input_ids[0, ::2]]
    plain = [t for t, cue in enumerate(cues) if cue.offsets and cue.mark is Mark.NONE]
    for fixed in ((3, 2), (3, 1), (2, 1)):
        other = np.array([t for t in plain if cues[t].offsets != fixed])
        far, near = (answers[0, other - offset] for offset in fixed)
        read = LANGUAGE.combine(far, near, far, np.zeros(len(far), bool))
        assert (read == answers[0, other]).mean() < 0.4


def test_another_reference_does_not_stand_in_for_the_link(text: Examples) -> None:
    """The newest answer beside the same cue's mark and label, read as if it were the link: a quarter at most."""
    right = total = 0
    for tokens, targets in zip(text.input_ids[:8], text.targets[:8], strict=True):
        newest: dict[tuple[Mark, int], int] = {}
        for at in range(0, len(tokens), 2):
            cue = LANGUAGE.cues[tokens[at] - 16]
            if cue.mark in (Mark.INSTRUCTION_REFERENCE, Mark.TOPIC_REFERENCE):
                if (cue.mark, cue.label) in newest and cue.offsets:
                    total += 1
                    right += targets[at] == newest[cue.mark, cue.label]
                newest[cue.mark, cue.label] = tokens[at + 1]
    assert total > 200
    assert right / total < 0.33


def test_the_arguments_say_everything() -> None:
    text, again, more = (LANGUAGE.draw(rows, 256, seed=7) for rows in (2, 2, 5))
    for name in ("input_ids", "targets", "kinds"):
        np.testing.assert_array_equal(getattr(text, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(text, name), getattr(more, name)[:2])
    assert not np.array_equal(text.input_ids[0], text.input_ids[1])
    assert not np.array_equal(text.input_ids, LANGUAGE.draw(2, 256, seed=8).input_ids)


def test_the_vocabulary_is_small() -> None:
    assert LANGUAGE.vocab_size == 16 + 4 * (1 + 4 + 4 + 4 + 4 + 64)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"symbols": 9}, "square of an even number, got 9"),
        ({"symbols": 0}, "square of an even number"),
        ({"symbols": 8}, "square of an even number"),
        ({"sources": 1.5}, "share from 0 to 1, got 1.5"),
        ({"rates": Rates(hidden_marks=0.1)}, "hidden_marks must be 0"),
        ({"rates": Rates(false_marks=0.1)}, "false_marks must be 0"),
        ({"rates": Rates(recurrence_depth=2)}, "recurrence_depth must be 1"),
        ({"rates": Rates(local_links=0)}, "local_links must be 1 or 2, got 0"),
        ({"rates": Rates(local_links=3)}, "local_links must be 1 or 2, got 3"),
        ({"rates": Rates(entities=20_000)}, "at most 65536"),
    ],
)
def test_languages_without_an_answer_are_refused(fields: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        DependencyLanguage(**fields)


@pytest.mark.parametrize(
    ("rows", "length", "seed", "says"),
    [(0, 64, 0, "at least one row"), (1, 63, 0, "even length"), (1, 2, 0, "even length"), (1, 64, -1, "seed")],
)
def test_texts_that_cannot_be_drawn_are_refused(rows: int, length: int, seed: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        LANGUAGE.draw(rows, length, seed)
