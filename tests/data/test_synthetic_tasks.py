"""The small tasks: their form, their oracles, and that what is asked for cannot be guessed from elsewhere."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import IGNORED
from sheafstate.data.synthetic import (
    Examples,
    dyck,
    dyck_oracle,
    dyck_vocabulary,
    induction,
    induction_oracle,
    phone_book,
    phone_book_oracle,
    phone_book_vocabulary,
    selective_copying,
    selective_copying_oracle,
)
from sheafstate.errors import InputError
from tests.variants import examples

Drawer = Callable[[int, int], Examples]

TASKS: dict[str, tuple[Drawer, Callable, int]] = {
    "induction": (lambda rows, seed: induction(rows, 20, 5, seed), induction_oracle, 5),
    "copying": (lambda rows, seed: selective_copying(rows, 40, 7, 6, seed), selective_copying_oracle, 6),
    "phone book": (
        lambda rows, seed: phone_book(rows, 9, 4, 3, 2, seed),
        lambda ids: phone_book_oracle(ids, 3),
        phone_book_vocabulary(4),
    ),
    "dyck": (lambda rows, seed: dyck(rows, 60, 3, 4, seed), lambda ids: dyck_oracle(ids, 3), dyck_vocabulary(3)),
}


@examples(10)
@pytest.mark.parametrize("name", TASKS)
@given(rows=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_the_oracle_answers_everything_and_a_seed_says_everything(name: str, rows: int, seed: int) -> None:
    draw, oracle, vocabulary = TASKS[name]
    made, again = draw(rows, seed), draw(rows, seed)
    assert np.array_equal(made.input_ids, again.input_ids)
    assert np.array_equal(oracle(made.input_ids), made.targets)
    assert made.input_ids.shape == made.targets.shape == (rows, made.input_ids.shape[1])
    assert made.input_ids.min() >= 0
    assert max(made.input_ids.max(), made.targets.max()) < vocabulary
    assert (made.targets != IGNORED).any(1).all() or name == "dyck"


@pytest.mark.parametrize("name", TASKS)
def test_other_seeds_give_other_rows_and_answers_are_spread(name: str) -> None:
    draw, _, _ = TASKS[name]
    made = draw(400, 1)
    assert not np.array_equal(made.input_ids, draw(400, 2).input_ids)
    asked = made.targets[made.targets != IGNORED]
    shares = np.bincount(asked)[np.unique(asked)] / len(asked)
    assert shares.max() < 2 / len(shares)  # no answer is much likelier than another


def test_induction_asks_for_what_followed() -> None:
    made = induction(1, 5, 9, 3)
    tokens = made.input_ids[0].tolist()
    assert tokens.count(0) == 2
    assert made.targets[0, -1] == tokens[tokens.index(0) + 1] != 0


def test_symbols_are_copied_in_their_order() -> None:
    made = selective_copying(1, 12, 3, 9, 5)
    tokens = made.input_ids[0]
    assert tokens[tokens > 1].tolist() == made.targets[0, -3:].tolist()
    assert (tokens[-3:] == 1).all()


def test_a_phone_book_has_names_that_share_their_halves() -> None:
    made = phone_book(1, 16, 4, 2, 3, 0)
    names = made.input_ids[0, : 16 * 4].reshape(16, 4)[:, :2]
    assert len(np.unique(names, axis=0)) == 16
    assert len(np.unique(names[:, 0])) == len(np.unique(names[:, 1])) == 4
    assert made.input_ids.shape == (1, 16 * 4 + 3 * 5)
    assert (made.targets != IGNORED).sum() == 3 * 2
    for at in np.flatnonzero(made.targets[0] != IGNORED):  # the digit stands behind, for what follows
        assert made.input_ids[0, at + 1] == made.targets[0, at]


def test_brackets_are_balanced_and_no_deeper_than_asked() -> None:
    made = dyck(50, 200, 2, 3, 1)
    steps = np.where(made.input_ids < 2, 1, -1).cumsum(1)
    assert steps.min() >= 0
    assert steps.max() == 3
    assert made.kinds is not None
    assert set(np.unique(made.kinds)) == {-1, 0, 1, 2}
    assert ((made.kinds >= 0) == (made.targets != IGNORED)).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: induction(0),
        lambda: induction(1, 2),
        lambda: induction(1, 9, 2),
        lambda: induction(1, seed=-1),
        lambda: selective_copying(1, 9, 5),
        lambda: selective_copying(1, 9, 0),
        lambda: selective_copying(1, vocab_size=2),
        lambda: phone_book(1, 17, 4),
        lambda: phone_book(1, digits=0),
        lambda: dyck(1, depth=0),
        lambda: dyck(1, depth=128),
        lambda: dyck(1, 1),
        lambda: dyck(1, kinds=0),
    ],
)
def test_what_cannot_be_drawn_is_refused(call: Callable) -> None:
    with pytest.raises(InputError, match="got"):
        call()
