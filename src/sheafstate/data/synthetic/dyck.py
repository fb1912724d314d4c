"""Dyck-n: texts of balanced brackets of n kinds, of bounded depth; which bracket does the next one close?

The language is that of Hewitt et al., "RNNs can generate bounded hierarchical languages with optimal memory" (2020).
Whether the next token opens or closes is chance; where it closes, its kind follows from the open brackets alone and is
the target at the position before it. ``kinds`` is the depth of the bracket that is closed, less 1.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.errors import InputError

__all__ = ["dyck", "dyck_oracle", "dyck_vocabulary"]

OPENING = 0.5
"""Chance that a bracket is opened where both are allowed."""


def dyck_vocabulary(kinds: int) -> int:
    """Tokens: the opening brackets, then the closing ones."""
    return 2 * kinds


def dyck(rows: int, length: int = 256, kinds: int = 8, depth: int = 8, seed: int = 0) -> Examples:
    """Draw ``rows`` prefixes of ``length`` tokens of balanced texts with ``kinds`` brackets, ``depth`` deep at most.

    Raises:
        InputError: for no rows, kinds or depth, a depth over 127, fewer than 2 tokens, or a negative seed.
    """
    if rows < 1 or kinds < 1 or not 1 <= depth <= 127 or length < 2 or seed < 0:
        raise InputError(
            f"brackets need a row, 2 tokens, a kind, a depth from 1 to 127 and a seed of 0 or more, got {rows}, "
            f"{length}, {kinds}, {depth} and {seed}"
        )
    rng = np.random.default_rng(seed)
    opens, fresh = rng.random((rows, length)) < OPENING, rng.integers(0, kinds, size=(rows, length))
    input_ids, targets = np.empty((rows, length), np.int64), np.full((rows, length), IGNORED, np.int64)
    levels = np.full((rows, length), -1, np.int8)
    stack, height, every = np.zeros((rows, depth), np.int64), np.zeros(rows, np.int64), np.arange(rows)
    for t in range(length):
        opening = (height == 0) | (opens[:, t] & (height < depth))
        top = stack[every, np.maximum(height - 1, 0)]
        input_ids[:, t] = np.where(opening, fresh[:, t], kinds + top)
        if t:
            targets[:, t - 1] = np.where(opening, IGNORED, input_ids[:, t])
            levels[:, t - 1] = np.where(opening, -1, height - 1)
        stack[every[opening], height[opening]] = fresh[opening, t]
        height += np.where(opening, 1, -1)
    return Examples(input_ids, targets, levels)


def dyck_oracle(input_ids: NDArray[np.int64], kinds: int = 8) -> NDArray[np.int64]:
    """The closing bracket at every position that has one behind it, −100 elsewhere, from the inputs' past alone.

    Which positions those are is read off the inputs; which bracket it is, off the open ones.
    """
    answers = np.full_like(input_ids, IGNORED)
    for row, tokens in enumerate(input_ids.tolist()):
        open_brackets: list[int] = []
        for at, token in enumerate(tokens):
            if at and token >= kinds:
                answers[row, at - 1] = kinds + open_brackets.pop()
            elif token < kinds:
                open_brackets.append(token)
    return answers
