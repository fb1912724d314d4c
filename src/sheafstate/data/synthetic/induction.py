"""Induction: what stood behind this token the last time?

The form is that of Gu and Dao, "Mamba: Linear-time sequence modeling with selective state spaces" (2023), section 4.1:
a special token stands once in a text of random tokens and once more at its end, to be answered by what followed it.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.errors import InputError

__all__ = ["induction", "induction_oracle"]

SPECIAL = 0


def induction(rows: int, length: int = 256, vocab_size: int = 16, seed: int = 0) -> Examples:
    """Draw ``rows`` texts of ``length`` tokens; token 0 is the special one, and the last.

    Raises:
        InputError: for no rows, fewer than 3 tokens, a vocabulary of fewer than 3, or a negative seed.
    """
    if rows < 1 or length < 3 or vocab_size < 3 or seed < 0:
        raise InputError(
            f"induction needs a row, 3 tokens, 3 symbols and a seed of 0 or more, got {rows}, {length}, {vocab_size} "
            f"and {seed}"
        )
    rng = np.random.default_rng(seed)
    input_ids = rng.integers(1, vocab_size, size=(rows, length))
    places = rng.integers(0, length - 2, size=rows)
    every = np.arange(rows)
    input_ids[every, places] = SPECIAL
    input_ids[:, -1] = SPECIAL
    targets = np.full((rows, length), IGNORED, np.int64)
    targets[:, -1] = input_ids[every, places + 1]
    return Examples(input_ids, targets)


def induction_oracle(input_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The answer at the last position, −100 elsewhere, ``(rows, length)``, from the inputs alone."""
    answers = np.full_like(input_ids, IGNORED)
    first = (input_ids == SPECIAL).argmax(1)
    answers[:, -1] = input_ids[np.arange(len(input_ids)), first + 1]
    return answers
