"""Tokens as text that a person can tell apart, bytes that are no character included."""

import re
from collections.abc import Iterable

from tokenizers import decoders
from transformers import PreTrainedTokenizerBase

from sheafstate.data.tokenizers import NUM_BYTES, byte_tokenizer

__all__ = ["token_labels"]

_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_NO_CHARACTER = "\ufffd"
_ESCAPED = 0xDC00  # where Python's surrogateescape puts the bytes that it cannot decode


def token_labels(tokenizer: PreTrainedTokenizerBase, ids: Iterable[int]) -> list[str]:
    """The text of every token by itself.

    A token that holds part of a character shows the bytes of that part, as in ``⟨E2⟩``; special tokens show their
    name. Line breaks and other control characters are left as they are.

    Args:
        tokenizer: a tokenizer of :mod:`sheafstate.data`, or any other fast one.
        ids: ids of its vocabulary.
    """
    special = set(tokenizer.all_special_ids)
    value_of: dict[str, int] = {}
    if isinstance(tokenizer.backend_tokenizer.decoder, decoders.ByteLevel):
        value_of = {symbol: value for symbol, value in byte_tokenizer().get_vocab().items() if value < NUM_BYTES}

    def label(token: int) -> str:
        name, text = str(tokenizer.convert_ids_to_tokens(token)), str(tokenizer.decode([token]))
        if token in special:
            return name
        raw = _bytes(name, value_of) if _NO_CHARACTER in text else None
        return text if raw is None else _shown(raw)

    return [label(int(token)) for token in ids]


def _bytes(name: str, value_of: dict[str, int]) -> bytes | None:
    """The bytes that a token stands for, if its name spells them."""
    if match := _FALLBACK.fullmatch(name):
        return bytes([int(match[1], 16)])
    return bytes(map(value_of.__getitem__, name)) if all(symbol in value_of for symbol in name) else None


def _shown(raw: bytes) -> str:
    decoded = raw.decode("utf-8", errors="surrogateescape")
    return "".join(f"⟨{ord(c) - _ESCAPED:02X}⟩" if _ESCAPED <= ord(c) <= _ESCAPED + 0xFF else c for c in decoded)
