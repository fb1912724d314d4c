"""Selective copying: repeat the few tokens that count, in their order, whatever stands between them.

The form is that of Gu and Dao, "Mamba: Linear-time sequence modeling with selective state spaces" (2023), section 4.1:
symbols at random places among fillers, then as many marks as there are symbols, each to be answered by the next one.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.errors import InputError

__all__ = ["selective_copying", "selective_copying_oracle"]

FILLER, MARK, FIRST = 0, 1, 2
"""Tokens: what is to be passed over, what asks for the next symbol, and the first of the symbols."""


def selective_copying(rows: int, length: int = 256, symbols: int = 16, vocab_size: int = 16, seed: int = 0) -> Examples:
    """Draw ``rows`` texts of ``length`` tokens with ``symbols`` symbols, as many marks behind them.

    Raises:
        InputError: for no rows or symbols, a length below twice their number, a vocabulary without a symbol, or a
            negative seed.
    """
    if rows < 1 or symbols < 1 or length < 2 * symbols or vocab_size <= FIRST or seed < 0:
        raise InputError(
            f"copying {symbols} symbols needs a row, {2 * symbols} tokens, a vocabulary of {FIRST + 1} and a seed of 0 "
            f"or more, got {rows}, {length}, {vocab_size} and {seed}"
        )
    rng = np.random.default_rng(seed)
    body = length - symbols
    places = np.sort(np.argsort(rng.random((rows, body)), axis=1)[:, :symbols], axis=1)
    content = rng.integers(FIRST, vocab_size, size=(rows, symbols))
    input_ids = np.full((rows, length), FILLER, np.int64)
    np.put_along_axis(input_ids, places, content, axis=1)
    input_ids[:, body:] = MARK
    targets = np.full((rows, length), IGNORED, np.int64)
    targets[:, body:] = content
    return Examples(input_ids, targets)


def selective_copying_oracle(input_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The answer at every mark, −100 elsewhere, ``(rows, length)``, from the inputs alone."""
    answers = np.full_like(input_ids, IGNORED)
    for row, tokens in enumerate(input_ids):
        answers[row, tokens == MARK] = tokens[tokens >= FIRST]
    return answers
