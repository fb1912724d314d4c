"""Windows for measuring: every token of every text is predicted exactly once.

The last mark of a document is left out: what is measured is the probability of the text, so that tokens and bytes are
the text's own and figures compare with published ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from sheafstate.data.packing import IGNORED
from sheafstate.data.tokens import TokenStream
from sheafstate.errors import InputError

__all__ = ["WindowBatch", "Windows"]


@dataclass(frozen=True)
class WindowBatch:
    """Windows padded on the right, each of shape ``(rows, longest)``; int64.

    Attributes:
        input_ids: what the model reads.
        attention_mask: 1 at tokens, 0 at padding.
        targets: the token that follows each; −100 at padding and where another window counts it.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    targets: torch.Tensor


@dataclass(frozen=True)
class Windows:
    """Windows of at most ``context`` tokens over every document, ``stride`` apart, in the order of the stream.

    A window counts the targets that no earlier window of its document counts, so that with a stride below the context
    each target but the first has at least ``context - stride`` tokens before it.

    Attributes:
        stream: the documents.
        begins: index of each window's first token, shape ``(windows,)``.
        lengths: tokens of each window, shape ``(windows,)``.
        skips: leading targets of each window that do not count, shape ``(windows,)``.
        documents: number of the document of each window, shape ``(windows,)``.
    """

    stream: TokenStream
    begins: np.ndarray
    lengths: np.ndarray
    skips: np.ndarray
    documents: np.ndarray

    @classmethod
    def over(cls, stream: TokenStream, context: int, stride: int | None = None) -> "Windows":
        """Lay windows over a stream.

        Raises:
            InputError: the stride is not between 1 and the context.
        """
        stride = context if stride is None else stride
        if not 1 <= stride <= context:
            raise InputError(f"the stride must be between 1 and the context ({context}), not {stride}")
        targets = stream.ends - stream.starts - 2  # neither mark is predicted
        counts = 1 + np.maximum(0, -(-(targets - context) // stride))
        documents = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)
        return cls(
            stream,
            begins=stream.starts[documents] + number * stride,
            lengths=np.minimum(context, targets[documents] - number * stride),
            skips=np.where(number > 0, context - stride, 0),
            documents=documents,
        )

    def __len__(self) -> int:
        return len(self.begins)

    def batches(self, rows: int, part: int = 0, parts: int = 1) -> Iterator[WindowBatch]:
        """Batches of at most ``rows`` windows of like length; of several ``parts``, the share of one ``part``."""
        return map(self.batch, self.numbers(rows, part, parts))

    def numbers(self, rows: int, part: int = 0, parts: int = 1) -> Iterator[np.ndarray]:
        """The numbers of the windows of each batch."""
        order = np.argsort(-self.lengths, kind="stable")[part::parts]
        for start in range(0, len(order), rows):
            yield order[start : start + rows]

    def batch(self, numbers: np.ndarray) -> WindowBatch:
        """Windows by number; a negative number gives a row of padding alone."""
        longest = int(self.lengths[numbers[numbers >= 0]].max())
        ids = np.zeros((len(numbers), longest), dtype=np.int64)
        mask, targets = np.zeros_like(ids), np.full_like(ids, IGNORED)
        for row, number in enumerate(numbers):
            if number >= 0:
                begin, length, skip = self.begins[number], self.lengths[number], self.skips[number]
                tokens = self.stream.tokens[begin : begin + length + 1]
                ids[row, :length] = tokens[:-1]
                mask[row, :length] = 1
                targets[row, skip:length] = tokens[1 + skip :]
        return WindowBatch(*map(torch.from_numpy, (ids, mask, targets)))
