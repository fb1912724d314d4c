"""A token stream holds every document, marked at both ends, and is the same in memory, on disk and in pieces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import TokenStream, encode, tokens
from sheafstate.errors import InputError

from .conftest import SPECS, TRAPS


def texts_of(stream: TokenStream, tokenizer) -> list[str]:
    mark = tokenizer.eos_token_id
    found = []
    for start, end in zip(stream.starts, stream.ends, strict=True):
        ids = stream.tokens[start:end].tolist()
        assert ids[0] == ids[-1] == mark
        assert mark not in ids[1:-1]
        found.append(tokenizer.decode(ids[1:-1]))
    return found


@pytest.mark.parametrize("spec", SPECS)
@given(documents=st.lists(st.text(max_size=20), max_size=6))
def test_documents_come_back(spec: str, documents: list[str], tokenizers) -> None:
    stream = TokenStream.build(tokenizers[spec], documents)
    assert texts_of(stream, tokenizers[spec]) == [text for text in documents if text]
    assert stream.num_bytes == sum(len(text.encode()) for text in documents)


@pytest.mark.parametrize("spec", SPECS)
def test_what_looks_special_is_text(spec: str, tokenizers) -> None:
    assert texts_of(TokenStream.build(tokenizers[spec], TRAPS), tokenizers[spec]) == [text for text in TRAPS if text]


@pytest.mark.parametrize("piece", [1, 2, 7, 50])
@pytest.mark.parametrize("spec", SPECS)
def test_cutting_a_text_changes_nothing(spec: str, piece: int, tokenizers, excerpt: str, monkeypatch) -> None:
    text = excerpt[:3000] + "".join(TRAPS) + " \n  x\n\n\ny   z" * 20
    whole = tokenizers[spec](text, split_special_tokens=True).input_ids
    monkeypatch.setattr(tokens, "_PIECE", piece)
    monkeypatch.setattr(tokens, "_BATCH", 100)
    pieces = list(encode(tokenizers[spec], [text, "tail"]))
    assert len(pieces) > 10
    assert [token for number, ids, _ in pieces if number == 0 for token in ids.tolist()] == whole
    assert sum(size for number, _, size in pieces if number == 0) == len(text.encode())


def test_a_tokenizer_of_another_kind_is_given_whole_texts(tokenizers, monkeypatch) -> None:
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    backend = tokenizers["bpe:400"].backend_tokenizer
    lower = type(backend).from_str(backend.to_str())
    lower.normalizer = normalizers.Lowercase()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=lower, eos_token="<|endoftext|>")
    monkeypatch.setattr(tokens, "_PIECE", 3)
    assert len(list(encode(tokenizer, ["A text of several words"]))) == 1


def test_encoding_leaves_the_tokenizer_as_it_was(tokenizers) -> None:
    before = tokenizers["byte"].backend_tokenizer.to_str()
    list(encode(tokenizers["byte"], ["<|endoftext|>"]))
    assert tokenizers["byte"].backend_tokenizer.to_str() == before
    assert len(tokenizers["byte"]("<|endoftext|>").input_ids) == 1


def test_a_written_stream_is_the_built_one(tokenizers, tmp_path) -> None:
    documents = ["one", "", "two 漢", "three"]
    built = TokenStream.build(tokenizers["char"], documents)
    written = TokenStream.write(tokenizers["char"], documents, tmp_path)
    assert isinstance(written.tokens, np.memmap)
    for stream in (written, TokenStream.read(tmp_path)):
        assert stream.tokens.tolist() == built.tokens.tolist()
        assert stream.starts.tolist() == built.starts.tolist()
        assert (stream.num_bytes, stream.tokens.dtype) == (built.num_bytes, built.tokens.dtype)


def test_a_large_vocabulary_has_room(tokenizers, monkeypatch) -> None:
    tokenizer = tokenizers["byte"]
    monkeypatch.setattr(type(tokenizer), "__len__", lambda _: (1 << 16) + 1)
    assert TokenStream.build(tokenizer, ["a"]).tokens.dtype == np.uint32


@pytest.mark.parametrize("damage", ["stream.json", "starts.npy", "tokens.bin"])
def test_a_stream_that_is_not_whole_is_refused(tokenizers, tmp_path, damage: str) -> None:
    TokenStream.write(tokenizers["byte"], ["text"], tmp_path)
    (tmp_path / damage).write_bytes(b"")
    with pytest.raises(InputError, match="no whole token stream"):
        TokenStream.read(tmp_path)
    (tmp_path / damage).unlink()
    with pytest.raises(InputError, match="no whole token stream"):
        TokenStream.read(tmp_path)
