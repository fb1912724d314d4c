"""The likelihood of texts, by one of two readings.

*Carried*, for models with a state: a document is read from its beginning to its end in chunks, the state going from
one to the next, so that every token has all that the state keeps of the text before it. Cost is linear in the length.

*Windows*, for all others and on request: windows of ``context`` tokens, ``stride`` apart, each from nothing. With a
stride below the context the windows overlap and a token is counted where it has the more text before it.

Either way every token of a text is predicted exactly once, the first from the mark that stands before a document, and
the mark after it is not counted. Documents share batches and are padded on the right.
"""

import inspect
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.data import IGNORED, TokenStream, WindowBatch, Windows
from sheafstate.errors import InputError
from sheafstate.evaluation.metrics import Metrics

__all__ = ["carries_state", "evaluate"]


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
    was_training = model.training
    model.eval()
    with torch.no_grad():
        parts = _carried(model, windows, batch_size) if carry else _apart(model, windows, batch_size)
        sums = sum(parts, torch.zeros(2, dtype=torch.float64))
    model.train(was_training)
    if not sums.isfinite().all():
        raise InputError(
            "the model's predictions are not finite numbers: its weights are damaged or the text is too much"
        )
    return Metrics(nats=sums[0].item(), tokens=int(sums[1]), bytes=stream.num_bytes)


def _apart(model: PreTrainedModel, windows: Windows, rows: int) -> Iterator[torch.Tensor]:
    """Nats and tokens of each batch of windows, shape (2,), float64."""
    for batch in windows.batches(rows):
        logits = model(
            input_ids=batch.input_ids.to(model.device),
            attention_mask=batch.attention_mask.to(model.device),
            use_cache=False,
        ).logits
        yield _score(logits, batch)


def _carried(model: PreTrainedModel, windows: Windows, rows: int) -> Iterator[torch.Tensor]:
    """Nats and tokens of each chunk of each group of documents, shape (2,), float64."""
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
            yield _score(output.logits, batch)


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
    targets = batch.targets.to(logits.device)
    nats = cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return torch.stack((nats.double().sum(), (targets != IGNORED).sum().double())).cpu()
