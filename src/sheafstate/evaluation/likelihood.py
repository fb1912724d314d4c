"""The likelihood of texts, by one of two readings.

*Carried*, for models with a state: a document is read from its beginning to its end in chunks, the state going from
one to the next, so that every token has all that the state keeps of the text before it. Cost is linear in the length.

*Windows*, for all others and on request: windows of ``context`` tokens, ``stride`` apart, each from nothing. With a
stride below the context the windows overlap and a token is counted where it has the more text before it.

Either way every token of a text is predicted exactly once, the first from the mark that stands before a document, and
the mark after it is not counted. Documents share batches and are padded on the right.
"""

import inspect
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.data import IGNORED, TokenStream, WindowBatch, Windows
from sheafstate.errors import InputError
from sheafstate.evaluation.metrics import Metrics

__all__ = ["NotFiniteError", "carries_state", "evaluate", "log_likelihoods", "nats_by_position"]


class NotFiniteError(InputError):
    """A model's predictions are no numbers."""


_Part = tuple[np.ndarray, torch.Tensor]
"""Numbers of documents, and for each the nats and tokens of a piece of it: shapes (rows,) and (rows, 2), float64."""


def carries_state(model: PreTrainedModel) -> bool:
    """Whether a model hands on a state of fixed size, as ``cache``."""
    return bool(getattr(model, "_is_stateful", False)) and "cache" in inspect.signature(model.forward).parameters


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: Iterable[str],
    *,
    context: int = 1024,
    stride: int | None = None,
    carry: bool | None = None,
    batch_size: int = 8,
) -> Metrics:
    """Measure how well a model predicts texts.

    Args:
        model: a causal language model; its mode is left as it was.
        tokenizer: the tokenizer that fits it.
        documents: texts; empty ones are left out.
        context: tokens of a window, or of a chunk of the carried reading (which does not change the figures).
        stride: tokens between windows; the context by default. Only for windows.
        carry: read with the state carried over; by default if the model has one and no stride is given.
        batch_size: windows, or documents, computed at a time. It does not change the figures.

    Raises:
        InputError: there is no text, or the model carries no state where that is asked for, or the figures are no
            numbers.
    """
    stream = TokenStream.build(tokenizer, documents)
    if not len(stream):
        raise InputError("there is no text to measure on")
    if context < 1 or batch_size < 1:
        raise InputError(f"context and batch size must be at least 1, not {context} and {batch_size}")
    carry = carries_state(model) and stride is None if carry is None else carry
    if carry and (stride is not None or not carries_state(model)):
        reason = "a stride is for windows" if stride is not None else f"{type(model).__name__} has no state to carry"
        raise InputError(f"the state cannot be carried over: {reason}")
    windows = Windows.over(stream, context, stride)
    parts = _parts(model, windows, batch_size, carry)
    sums = sum((scores.sum(0) for _, scores in parts), torch.zeros(2, dtype=torch.float64))
    _check_finite(sums)
    return Metrics(nats=sums[0].item(), tokens=int(sums[1]), bytes=stream.num_bytes)


def log_likelihoods(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    context: int = 1024,
    batch_size: int = 8,
) -> list[float]:
    """The log-likelihood of each text, from the mark before it on; 0 for an empty text.

    Read with the state carried over where the model has one, else in windows that follow one another.

    Args:
        model: a causal language model; its mode is left as it was.
        tokenizer: the tokenizer that fits it.
        texts: any texts.
        context: tokens of a chunk, or of a window.
        batch_size: texts, or windows, computed at a time.

    Raises:
        InputError: the figures are no numbers.
    """
    found = np.zeros(len(texts))
    places = np.flatnonzero([bool(text) for text in texts])
    windows = Windows.over(TokenStream.build(tokenizer, texts), context)
    for documents, scores in _parts(model, windows, batch_size, carries_state(model)):
        _check_finite(scores)
        real = documents >= 0
        np.subtract.at(found, places[documents[real]], scores[torch.from_numpy(real), 0].numpy())
    return found.tolist()


@torch.no_grad()
def nats_by_position(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    documents: Iterable[str],
    *,
    context: int,
    batch_size: int = 1,
) -> torch.Tensor:
    """Nats and number of the tokens predicted at each position of a window, every window read from nothing.

    Whether a model makes use of a longer context shows in whether the nats a token go on falling.

    Args:
        model: a causal language model; its mode is left as it was.
        tokenizer: the tokenizer that fits it.
        documents: texts; empty ones are left out.
        context: tokens of a window.
        batch_size: windows computed at a time.

    Returns:
        shape (2, context), float64: the sum of nats, and the tokens.

    Raises:
        InputError: there is no text, or the figures are no numbers.
    """
    stream = TokenStream.build(tokenizer, documents)
    if not len(stream):
        raise InputError("there is no text to measure on")
    found = torch.zeros(2, context, dtype=torch.float64)
    was_training = model.training
    model.eval()
    try:
        for batch in Windows.over(stream, context).batches(batch_size):
            nats = _nats(_logits(model, batch), batch)
            found[:, : nats.shape[1]] += torch.stack((nats.sum(0).cpu(), (batch.targets != IGNORED).sum(0).double()))
    finally:
        model.train(was_training)
    _check_finite(found)
    return found


def _check_finite(scores: torch.Tensor) -> None:
    if not scores.isfinite().all():
        raise NotFiniteError(
            "the model's predictions are not finite numbers: its weights are damaged or the text is too much"
        )


@torch.no_grad()
def _parts(model: PreTrainedModel, windows: Windows, rows: int, carry: bool) -> Iterator[_Part]:
    was_training = model.training
    model.eval()
    try:
        yield from (_carried if carry else _apart)(model, windows, rows)
    finally:
        model.train(was_training)


def _apart(model: PreTrainedModel, windows: Windows, rows: int) -> Iterator[_Part]:
    """Each batch of windows."""
    for numbers in windows.numbers(rows):
        batch = windows.batch(numbers)
        yield windows.documents[numbers], _score(_logits(model, batch), batch)


def _logits(model: PreTrainedModel, batch: WindowBatch) -> torch.Tensor:
    """Of windows read from nothing. What needs no mask is read without one: a mask keeps some from their fast path."""
    mask = None if batch.attention_mask.all() else batch.attention_mask.to(model.device)
    logits: torch.Tensor = model(
        input_ids=batch.input_ids.to(model.device), attention_mask=mask, use_cache=False
    ).logits
    return logits


def _carried(model: PreTrainedModel, windows: Windows, rows: int) -> Iterator[_Part]:
    """Each chunk of each group of documents; the number of a document that has ended is −1."""
    for chunks in _groups(windows, rows):
        cache = None
        for numbers in chunks:
            batch = windows.batch(numbers)
            output = model(
                input_ids=batch.input_ids.to(model.device),
                attention_mask=batch.attention_mask.to(model.device),
                cache=cache,
                use_cache=True,
            )
            cache = output.cache
            yield np.where(numbers >= 0, windows.documents[numbers], -1), _score(output.logits, batch)


def _groups(windows: Windows, rows: int) -> Iterator[np.ndarray]:
    """Window numbers of ``rows`` documents of like length, shape ``(chunks, documents)``; −1 where none is left."""
    counts = np.bincount(windows.documents)
    first = np.cumsum(counts) - counts
    order = np.argsort(-counts, kind="stable")
    for start in range(0, len(order), rows):
        group = order[start : start + rows]
        chunk = np.arange(counts[group[0]])[:, None]
        yield np.where(chunk < counts[group], first[group] + chunk, -1)


def _score(logits: torch.Tensor, batch: WindowBatch) -> torch.Tensor:
    return torch.stack(
        (_nats(logits, batch).sum(1), (batch.targets != IGNORED).sum(1).double().to(logits.device)), 1
    ).cpu()


def _nats(logits: torch.Tensor, batch: WindowBatch) -> torch.Tensor:
    """Of every target, 0 where there is none; (rows, longest), float64."""
    targets = batch.targets.to(logits.device)
    nats = cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return nats.view_as(targets).double()
