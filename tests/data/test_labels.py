"""Tokens as text: together they are the text, and every one of them can be shown."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import load_tokenizer
from sheafstate.data.labels import token_labels

LEARNED = ["naïve café, the theatre — then the other, the thing\n"]
TOKENIZERS = {spec: load_tokenizer(spec, LEARNED) for spec in ("byte", "char", "bpe:280")}
BYTE = re.compile("⟨([0-9A-F]{2})⟩")

tokenizers = pytest.mark.parametrize("spec", TOKENIZERS)


def said(labels: list[str]) -> bytes:
    """What labels spell; they are unambiguous in a text that holds no such brackets itself."""
    parts = (BYTE.split(label) for label in labels)
    return b"".join(bytes([int(p, 16)]) if i % 2 else p.encode() for part in parts for i, p in enumerate(part))


@tokenizers
@given(text=st.text().filter(lambda text: "⟨" not in text))
def test_labels_spell_the_text(spec: str, text: str) -> None:
    tokenizer = TOKENIZERS[spec]
    ids = tokenizer(text).input_ids
    labels = token_labels(tokenizer, ids)
    assert len(labels) == len(ids)
    assert said(labels) == text.encode()


def test_parts_of_characters_are_shown_as_bytes() -> None:
    assert token_labels(TOKENIZERS["byte"], "aé".encode()) == ["a", "⟨C3⟩", "⟨A9⟩"]
    assert token_labels(TOKENIZERS["char"], TOKENIZERS["char"]("é中").input_ids) == ["é", "⟨E4⟩", "⟨B8⟩", "⟨AD⟩"]


@tokenizers
def test_every_token_has_a_label(spec: str) -> None:
    tokenizer = TOKENIZERS[spec]
    labels = token_labels(tokenizer, range(len(tokenizer)))
    assert len(set(labels)) == len(labels)
    assert labels[tokenizer.eos_token_id] == "<|endoftext|>"
