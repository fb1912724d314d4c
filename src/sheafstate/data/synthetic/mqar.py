"""Multi-query associative recall: key-value pairs first, then each key once more, to be answered by its value.

The form is that of Arora, Eyuboglu et al., "Zoology: Measuring and improving recall in efficient language models"
(HazyResearch/zoology, ``multiquery_ar``): distinct keys from the lower half of the vocabulary without 0, distinct
values from the upper half, ``k v k v …``, then the queries, a gap of 2·g tokens after the pairs with g drawn without
replacement from p(g) ∝ (g + 1)^(a − 1), a = 0.01. The value does not follow its query in the inputs.

One thing is ours: fillers never equal a live key. Zoology draws the tokens between the queries from the whole
vocabulary, so that now and then a filler is a key of the row that has no target. Here they are drawn from the
vocabulary without the row's own keys: a key after the pairs is always a query.
"""

import numpy as np
from numpy.typing import NDArray

from sheafstate.data.packing import IGNORED
from sheafstate.data.synthetic.examples import Examples
from sheafstate.errors import InputError

__all__ = ["mqar", "mqar_oracle"]

POWER = 0.01  # zoology's power_a; 1 would spread the queries evenly


def mqar(rows: int, length: int = 512, pairs: int = 64, vocab_size: int = 8_192, seed: int = 0) -> Examples:
    """Draw ``rows`` examples of ``length`` tokens with ``pairs`` queries each; the arguments say everything.

    Raises:
        InputError: for no rows or pairs, a negative seed, more pairs than the length (4 tokens a pair) or the
            vocabulary (a key and a value of its own half a pair) has room for.
    """
    _check(rows, length, pairs, vocab_size, seed)
    rng = np.random.default_rng(seed)
    half, context = vocab_size // 2, 2 * pairs
    keys = 1 + _draw_distinct(rng.random((rows, half - 1)), pairs)
    values = half + _draw_distinct(rng.random((rows, vocab_size - half)), pairs)
    places = (length - context) // 2
    # The largest of log p + Gumbel noise, in falling order, are a draw without replacement.
    odds = (POWER - 1) * np.log(np.arange(1, places + 1))
    queries = context + 2 * _draw_distinct(odds + rng.gumbel(size=(rows, places)), pairs)

    input_ids = _draw_without(keys, (rows, length), vocab_size, rng)
    targets = np.full((rows, length), IGNORED, np.int64)
    input_ids[:, 0:context:2], input_ids[:, 1:context:2] = keys, values
    np.put_along_axis(input_ids, queries, keys, axis=1)
    np.put_along_axis(targets, queries, values, axis=1)
    return Examples(input_ids, targets)


def mqar_oracle(input_ids: NDArray[np.int64], pairs: int) -> NDArray[np.int64]:
    """The answer at every query, −100 elsewhere, ``(rows, length)``, from the inputs alone."""
    context = 2 * pairs
    answers = np.full_like(input_ids, IGNORED)
    for row, tokens in enumerate(input_ids.tolist()):
        value_of = dict(zip(tokens[0:context:2], tokens[1:context:2], strict=True))
        answers[row, context:] = [value_of.get(token, IGNORED) for token in tokens[context:]]
    return answers


def _check(rows: int, length: int, pairs: int, vocab_size: int, seed: int) -> None:
    if rows < 1 or pairs < 1:
        raise InputError(f"recall needs at least one row and one pair, got {rows} rows and {pairs} pairs")
    if length < 4 * pairs:
        raise InputError(f"{pairs} pairs and their queries need at least {4 * pairs} tokens, got a length of {length}")
    if vocab_size // 2 - 1 < pairs:
        raise InputError(f"{pairs} pairs need a vocabulary of at least {2 * pairs + 2}, got {vocab_size}")
    if seed < 0:
        raise InputError(f"the seed must be an integer of 0 or more, got {seed}")


def _draw_distinct(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The columns of the ``count`` largest scores of every row, largest first, ``(rows, count)``."""
    largest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, largest, axis=1), axis=1)
    return np.take_along_axis(largest, order, axis=1)


def _draw_without(
    keys: NDArray[np.int64], shape: tuple[int, int], vocab_size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Tokens drawn evenly from the vocabulary without the row's own keys.

    A token is drawn as its rank among those that are left; the rank grows by the number of keys at or below the token.
    """
    rows, pairs = keys.shape
    ranks = rng.integers(vocab_size - pairs, size=shape)
    first = np.arange(rows)[:, None] * vocab_size
    bounds = np.sort(keys, axis=1) - np.arange(pairs) + first
    below = np.searchsorted(bounds.ravel(), (ranks + first).ravel(), side="right").reshape(shape)
    return ranks + below - np.arange(rows)[:, None] * pairs
