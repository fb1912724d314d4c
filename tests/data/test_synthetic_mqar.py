"""Recall has the published form, and every query has an answer that the inputs hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import IGNORED
from sheafstate.data.synthetic import mqar, mqar_oracle
from sheafstate.errors import InputError


@st.composite
def shapes(draw) -> dict[str, int]:
    pairs = draw(st.integers(1, 12))
    return {
        "rows": draw(st.integers(1, 4)),
        "length": 4 * pairs + draw(st.integers(0, 40)),
        "pairs": pairs,
        "vocab_size": 2 * pairs + 2 + draw(st.integers(0, 50)),
        "seed": draw(st.integers(0, 2**32)),
    }


@given(shapes())
def test_the_form_is_the_published_one(shape: dict[str, int]) -> None:
    examples = mqar(**shape)
    pairs, half, context = shape["pairs"], shape["vocab_size"] // 2, 2 * shape["pairs"]
    assert examples.input_ids.shape == examples.targets.shape == (shape["rows"], shape["length"])
    assert examples.input_ids.dtype == examples.targets.dtype == np.int64
    assert examples.kinds is None
    for tokens, targets in zip(examples.input_ids, examples.targets, strict=True):
        keys, values = tokens[:context:2], tokens[1:context:2]
        assert len({*keys}) == len({*values}) == pairs
        assert np.all((keys >= 1) & (keys < half))
        assert np.all((values >= half) & (values < shape["vocab_size"]))
        assert np.all((tokens >= 0) & (tokens < shape["vocab_size"]))
        queries = np.flatnonzero(targets != IGNORED)
        assert np.all(queries >= context)
        assert np.all(queries % 2 == 0)
        assert sorted(tokens[queries]) == sorted(keys)


@given(shapes())
def test_fillers_never_equal_a_live_key(shape: dict[str, int]) -> None:
    examples = mqar(**shape)
    after = slice(2 * shape["pairs"], None)
    for tokens, targets in zip(examples.input_ids, examples.targets, strict=True):
        fillers = tokens[after][targets[after] == IGNORED]
        assert not np.isin(fillers, tokens[: after.start : 2]).any()


@given(shapes())
def test_the_oracle_answers_every_query(shape: dict[str, int]) -> None:
    examples = mqar(**shape)
    np.testing.assert_array_equal(mqar_oracle(examples.input_ids, shape["pairs"]), examples.targets)


def test_the_answer_is_in_the_pair_alone() -> None:
    """Another value beside a key gives another answer: the oracle reads the pairs, and so must a model."""
    examples = mqar(1, length=64, pairs=4, vocab_size=64, seed=3)
    moved = examples.input_ids.copy()
    moved[0, 1] = 32 + (moved[0, 1] - 31) % 32
    changed = np.flatnonzero(mqar_oracle(moved, 4) != examples.targets)
    assert [moved[0, query] for query in changed] == [moved[0, 0]]


def test_fillers_are_drawn_evenly_from_all_that_is_left() -> None:
    examples = mqar(2_000, length=40, pairs=2, vocab_size=10, seed=0)
    tokens, fillers = examples.input_ids, examples.targets[:, 4:] == IGNORED
    counts = np.zeros(10)
    for row in range(len(tokens)):
        left = np.setdiff1d(np.arange(10), tokens[row, :4:2])
        drawn = tokens[row, 4:][fillers[row]]
        counts[left] += np.bincount(drawn, minlength=10)[left] - len(drawn) / len(left)
    assert np.all(np.abs(counts) < 5 * np.sqrt(tokens.size / 8))


def test_gaps_follow_the_power_law() -> None:
    """Of one pair, the first place after the pairs is drawn in proportion to 1, the second to 2^(−0.99), …"""
    targets = mqar(20_000, length=10, pairs=1, vocab_size=32, seed=1).targets
    share = (targets != IGNORED).mean(axis=0)[2::2]
    odds = np.arange(1.0, 5.0) ** -0.99
    np.testing.assert_allclose(share, odds / odds.sum(), atol=0.015)


def test_the_arguments_say_everything() -> None:
    first, again, other = (mqar(4, length=64, pairs=8, vocab_size=256, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.input_ids, again.input_ids)
    np.testing.assert_array_equal(first.targets, again.targets)
    assert not np.array_equal(first.input_ids, other.input_ids)


def test_the_defaults_are_the_published_task() -> None:
    examples = mqar(2)
    assert examples.input_ids.shape == (2, 512)
    assert np.all((examples.targets != IGNORED).sum(axis=1) == 64)
    assert 4096 < examples.input_ids.max() < 8192


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": 0}, "at least one row"),
        ({"pairs": 0}, "at least one row and one pair"),
        ({"length": 31}, "at least 32 tokens"),
        ({"vocab_size": 17}, "at least 18"),
        ({"seed": -1}, "seed"),
    ],
)
def test_the_impossible_is_refused(change: dict[str, int], says: str) -> None:
    with pytest.raises(InputError, match=says):
        mqar(**{"rows": 1, "length": 32, "pairs": 8, "vocab_size": 18, "seed": 0} | change)
