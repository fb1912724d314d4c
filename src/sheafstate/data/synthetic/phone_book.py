"""A phone book: entries of a name and a number, then a name, to be answered by its number digit by digit.

The form is that of Jelassi et al., "Repeat after me: transformers are better than state space models at copying"
(2024), section 4, with tokens in place of written names. A name is two tokens and no two entries share it, but many
share one of its halves: one token alone does not say which entry is meant. The digits already given stand in the
inputs, as they do where a model writes on by itself.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.errors import InputError

__all__ = ["phone_book", "phone_book_oracle", "phone_book_vocabulary"]

DIGITS = 10
ASK = DIGITS
NAMES = DIGITS + 1
"""Tokens: digits are 0 to 9, then the mark that asks, then first names and family names."""


def phone_book_vocabulary(names: int) -> int:
    """Tokens of a book whose names have ``names`` first and as many second halves."""
    return NAMES + 2 * names


def phone_book(
    rows: int, entries: int = 32, names: int = 32, digits: int = 4, queries: int = 4, seed: int = 0
) -> Examples:
    """Draw ``rows`` books; each has ``entries · (2 + digits) + queries · (3 + digits)`` tokens.

    Args:
        rows: books.
        entries: of a book.
        names: halves of either kind, so ``names²`` names.
        digits: of a number.
        queries: names asked for, one after the other, with replacement.
        seed: of everything.

    Raises:
        InputError: for no rows, entries, digits or queries, more entries than names, or a negative seed.
    """
    if min(rows, entries, names, digits, queries) < 1 or entries > names**2 or seed < 0:
        raise InputError(
            f"a phone book needs a row, an entry, a digit, a query and a seed of 0 or more, and at most {names**2} "
            f"entries, got {rows}, {entries}, {digits}, {queries} and {seed}"
        )
    rng = np.random.default_rng(seed)
    chosen = np.argsort(rng.random((rows, names**2)), axis=1)[:, :entries]
    halves = np.stack([NAMES + chosen // names, NAMES + names + chosen % names], 2)
    numbers = rng.integers(0, DIGITS, size=(rows, entries, digits))
    asked = rng.integers(0, entries, size=(rows, queries))
    book = np.concatenate([halves, numbers], 2).reshape(rows, -1)
    every = np.arange(rows)[:, None]
    mark = np.full((rows, queries, 1), ASK)
    answers = numbers[every, asked]
    input_ids = np.concatenate([book, np.concatenate([mark, halves[every, asked], answers], 2).reshape(rows, -1)], 1)
    targets = np.full((rows, queries, 3 + digits), IGNORED, np.int64)
    targets[:, :, 2:-1] = answers  # the last digit asks for nothing
    whole = np.concatenate([np.full(book.shape, IGNORED, np.int64), targets.reshape(rows, -1)], 1)
    return Examples(input_ids, whole)


def phone_book_oracle(input_ids: NDArray[np.int64], digits: int = 4) -> NDArray[np.int64]:
    """The answer behind every name that is asked for, −100 elsewhere, ``(rows, length)``, from the inputs alone."""
    answers = np.full_like(input_ids, IGNORED)
    for row, tokens in enumerate(input_ids.tolist()):
        end = tokens.index(ASK)
        entries = [tokens[at : at + 2 + digits] for at in range(0, end, 2 + digits)]
        number_of = {tuple(entry[:2]): entry[2:] for entry in entries}
        for at in range(end, len(tokens), 3 + digits):
            answers[row, at + 2 : at + 2 + digits] = number_of[tuple(tokens[at + 1 : at + 3])]
    return answers
