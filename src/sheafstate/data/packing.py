"""Rows for training: windows of the token stream, each with the documents it holds kept apart."""

import numpy as np
from torch.utils.data import Dataset

from sheafstate.data.tokens import TokenStream
from sheafstate.errors import InputError

__all__ = ["IGNORED", "PackedRows"]

IGNORED = -100
"""Label of a token that nothing is trained to predict."""


class PackedRows(Dataset):
    """A token stream as rows of one length, without padding and without leaks.

    Row i of an epoch holds the ``context`` tokens from ``shift + i·context`` on, where the stream is a ring and the
    shift is 0 in epoch 0 and drawn for each later epoch; fewer than ``context`` tokens of the ring are in no row of an
    epoch. A document that a row's border cuts goes on in the next row as a document of its own.

    The first token of a row and of a document is never a label: a model that shifts labels by one would else be
    trained to predict a document's first token from the document before it.

    Args:
        stream: the documents.
        context: tokens of a row.
        seed: seed of the shifts.
        documents: how a row says where its documents lie: ``document_ids`` counts them; ``position_ids`` restarts at
            each, as models know it that have no document ids.

    Raises:
        InputError: the stream is shorter than one row, or a row has fewer than two tokens.
    """

    def __init__(self, stream: TokenStream, context: int, *, seed: int = 0, documents: str = "document_ids") -> None:
        if context < 2:
            raise InputError(f"the context must be at least 2 tokens, not {context}")
        if len(stream) < context:
            raise InputError(
                f"the training text has {len(stream)} tokens, fewer than one row of {context}: "
                "give more text or a smaller context"
            )
        self.stream = stream
        self.context = context
        self.seed = seed
        self.documents = documents
        self.shift = 0

    def __len__(self) -> int:
        return len(self.stream) // self.context

    def set_epoch(self, epoch: int) -> None:
        """Place the rows of an epoch; a function of the seed and the epoch alone."""
        random = np.random.default_rng((self.seed, epoch))
        self.shift = int(random.integers(len(self.stream))) if epoch else 0

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Row ``index`` as int64 arrays of shape ``(context,)``: ids, labels, and where documents lie."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        begin = (self.shift + index * self.context) % len(self.stream)
        ids, first = self._slice(begin, min(begin + self.context, len(self.stream)))
        if len(ids) < self.context:
            more_ids, more_first = self._slice(0, self.context - len(ids))
            ids, first = np.concatenate((ids, more_ids)), np.concatenate((first, more_first))
        first[0] = True
        return {
            "input_ids": ids,
            "labels": np.where(first, IGNORED, ids),
            self.documents: _positions(first) if self.documents == "position_ids" else np.cumsum(first) - 1,
        }

    def _slice(self, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of a piece of the stream, and whether each is the first of a document."""
        first = np.zeros(end - begin, dtype=bool)
        low, high = np.searchsorted(self.stream.starts, (begin, end))
        first[self.stream.starts[low:high] - begin] = True
        return self.stream.tokens[begin:end].astype(np.int64), first


def _positions(first: np.ndarray) -> np.ndarray:
    index = np.arange(len(first))
    return index - np.maximum.accumulate(np.where(first, index, 0))
