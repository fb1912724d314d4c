"""Documents as one stream of token ids, in memory or in a file that processes share.

A document is written ``mark, text, mark``, the mark being the tokenizer's special tokens (``bos``, or ``eos`` where
there is none, and ``eos``). So every token of a text is predicted from something, and the model learns where texts
end. What looks like a special token inside a text is encoded as the characters that it is.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerBase

from sheafstate.errors import InputError

__all__ = ["TokenStream", "encode"]

_PIECE = 1 << 16  # characters encoded as one unit at the most, where the tokenizer allows a cut
_BATCH = 1 << 21  # characters encoded at a time; bounds the memory
_MARKS = 2  # tokens of a document besides those of its text
_DTYPES = {"uint16": np.uint16, "uint32": np.uint32}


@dataclass(frozen=True)
class TokenStream:
    """Documents end to end.

    Attributes:
        tokens: ids, shape ``(n,)``; unsigned, 16 or 32 bits.
        starts: index of each document's first token, shape ``(documents,)``, int64, increasing from 0.
        num_bytes: length of the texts in UTF-8.
    """

    tokens: np.ndarray
    starts: np.ndarray
    num_bytes: int

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def ends(self) -> np.ndarray:
        """Index after each document's last token, shape ``(documents,)``."""
        return np.append(self.starts, len(self.tokens))[1:]

    @classmethod
    def build(cls, tokenizer: PreTrainedTokenizerBase, documents: Iterable[str]) -> "TokenStream":
        """Encode documents in memory; empty ones are left out."""
        parts: list[np.ndarray] = []
        starts, num_bytes = _lay_out(tokenizer, documents, parts.append)
        dtype = _dtype(tokenizer)
        return cls(np.concatenate(parts) if parts else np.zeros(0, dtype), starts, num_bytes)

    @classmethod
    def write(cls, tokenizer: PreTrainedTokenizerBase, documents: Iterable[str], folder: Path) -> "TokenStream":
        """Encode documents into a folder; a description is written last, so that a folder with one is whole."""
        folder.mkdir(parents=True, exist_ok=True)
        description = folder / "stream.json"
        description.unlink(missing_ok=True)
        with (folder / "tokens.bin").open("wb") as file:
            starts, num_bytes = _lay_out(tokenizer, documents, lambda part: file.write(part.tobytes()))
        np.save(folder / "starts.npy", starts, allow_pickle=False)
        facts = {"dtype": _dtype(tokenizer).name, "num_bytes": num_bytes}
        description.write_text(json.dumps(facts), encoding="utf-8")
        return cls.read(folder)

    @classmethod
    def read(cls, folder: Path) -> "TokenStream":
        """Map a written stream into memory.

        Raises:
            InputError: the folder holds no whole stream.
        """
        try:
            facts = json.loads((folder / "stream.json").read_text(encoding="utf-8"))
            starts = np.load(folder / "starts.npy", allow_pickle=False)
            tokens = np.memmap(folder / "tokens.bin", dtype=_DTYPES[facts["dtype"]], mode="r")
            stream = cls(tokens, starts, facts["num_bytes"])
            whole = _is_whole(stream)
        except Exception as error:  # NumPy's and JSON's faults have no common class
            raise InputError(f"{folder} holds no whole token stream: {error}") from error
        if not whole:
            raise InputError(f"{folder} holds no whole token stream: its files do not fit each other")
        return stream


def encode(tokenizer: PreTrainedTokenizerBase, documents: Iterable[str]) -> Iterator[tuple[int, np.ndarray, int]]:
    """Encode texts without special tokens, a long one in several pieces.

    Pieces are cut only where the tokenizer would part the text anyway: anywhere if it merges nothing, before white
    space after something else if it splits words as GPT-2 does, and nowhere if it is of another kind. The result is
    that of encoding each text whole, in bounded memory.

    Yields:
        The number of the document, ids of one piece of it, and the length of that piece in bytes; in order.
    """
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.encode_special_tokens = True
    backend.no_padding()
    backend.no_truncation()
    cut = _cutting_rule(backend)
    pieces = ((number, piece) for number, text in enumerate(documents) for piece in _cut(text, cut) if piece)
    dtype = _dtype(tokenizer)
    for batch in _batches(pieces):
        encodings = backend.encode_batch_fast([piece for _, piece in batch], add_special_tokens=False)
        for (number, piece), encoding in zip(batch, encodings, strict=True):
            yield number, np.array(encoding.ids, dtype=dtype), len(piece.encode("utf-8"))


def _lay_out(
    tokenizer: PreTrainedTokenizerBase, documents: Iterable[str], put: Callable[[np.ndarray], object]
) -> tuple[np.ndarray, int]:
    """Send the stream's parts to ``put``; return where documents start, and their bytes."""
    dtype = _dtype(tokenizer)
    end = np.array([tokenizer.eos_token_id], dtype=dtype)
    begin = end if tokenizer.bos_token_id is None else np.array([tokenizer.bos_token_id], dtype=dtype)
    starts, length, num_bytes, current = [], 0, 0, -1
    for number, ids, size in encode(tokenizer, documents):
        marks = () if number == current else (begin,) if current < 0 else (end, begin)
        for part in (*marks, ids):
            put(part)
            length += len(part)
        if number != current:
            starts.append(length - len(ids) - len(begin))
        current = number
        num_bytes += size
    if starts:
        put(end)
    return np.array(starts, dtype=np.int64), num_bytes


def _is_whole(stream: TokenStream) -> bool:
    """Whether documents begin at 0, each with two marks at the least, and end with the tokens."""
    starts = stream.starts
    return (
        isinstance(starts, np.ndarray)
        and starts.dtype == np.int64
        and starts.ndim == 1
        and (starts[0] == 0 if len(starts) else not len(stream))
        and bool((np.diff(np.append(starts, len(stream))) >= _MARKS).all())
        and isinstance(stream.num_bytes, int)
        and stream.num_bytes >= len(starts)
    )


def _dtype(tokenizer: PreTrainedTokenizerBase) -> np.dtype:
    return np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)


def _cutting_rule(backend: Tokenizer) -> str:
    """``anywhere``, ``words`` or ``nowhere``: what :func:`encode` says of the three kinds."""
    if backend.normalizer is not None:
        return "nowhere"
    model = json.loads(backend.to_str())["model"]
    split = backend.pre_tokenizer
    if isinstance(split, pre_tokenizers.ByteLevel) and not split.add_prefix_space:
        merges_nothing = model["type"] == "BPE" and not model["merges"]
        return "anywhere" if merges_nothing and not split.use_regex else "words" if split.use_regex else "nowhere"
    return "anywhere" if split is None and model["type"] == "BPE" and not model["merges"] else "nowhere"


def _cut(text: str, rule: str) -> Iterator[str]:
    start = 0
    while len(text) - start > _PIECE and rule != "nowhere":
        end = start + _PIECE
        if rule == "words":
            end = next((i for i in range(end, len(text)) if text[i].isspace() and not text[i - 1].isspace()), len(text))
        yield text[start:end]
        start = end
    yield text[start:]


def _batches(pieces: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    size = 0
    for number, piece in pieces:
        batch.append((number, piece))
        size += len(piece)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
