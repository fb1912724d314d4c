"""Each kind of tokenizer has the vocabulary that it must have; what cannot be used is refused."""

import json

import pytest

from sheafstate.data import END_OF_TEXT, load_tokenizer, saved_tokenizer
from sheafstate.errors import InputError

from .conftest import SPECS


@pytest.mark.parametrize("spec", SPECS)
def test_one_special_token_serves_all_ends(spec: str, tokenizers) -> None:
    tokenizer = tokenizers[spec]
    assert tokenizer.all_special_tokens == [END_OF_TEXT]
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == tokenizer.pad_token_id < len(tokenizer)
    assert tokenizer("a" + END_OF_TEXT).input_ids[-1] == tokenizer.eos_token_id


def test_byte_ids_are_the_bytes(tokenizers) -> None:
    tokenizer = tokenizers["byte"]
    assert len(tokenizer) == 257
    text = "".join(map(chr, range(0x250))) + "漢😀"
    assert tokenizer(text).input_ids == list(text.encode())


def test_char_gives_a_token_a_character(tokenizers, excerpt: str) -> None:
    tokenizer = tokenizers["char"]
    assert len(tokenizer(excerpt).input_ids) == len(excerpt)
    assert len(tokenizer("é漢").input_ids) == 2
    assert len(tokenizer("ü字").input_ids) == 2 + 3, "characters that the text has not are spelt in bytes"


def test_char_ids_follow_the_code_points_and_no_byte_is_idle(excerpt: str) -> None:
    tokenizer = load_tokenizer("char", ["ba"])
    assert tokenizer("ab").input_ids == [0, 1]
    letters, ascii_left, beyond_ascii, special = 2, 126, 0xF5 - 0x80 - 2, 1
    assert len(tokenizer) == letters + ascii_left + beyond_ascii + special


def test_bpe_learns_the_text(tokenizers, excerpt: str) -> None:
    tokenizer = tokenizers["bpe:400"]
    assert len(tokenizer) == 400
    assert len(tokenizer(excerpt).input_ids) < 0.7 * len(excerpt)


def test_bpe_is_the_same_twice(excerpt: str) -> None:
    first, second = (load_tokenizer("bpe:500", [excerpt]).backend_tokenizer.to_str() for _ in range(2))
    assert first == second


def test_bpe_of_a_short_text_is_smaller() -> None:
    assert len(load_tokenizer("bpe:4096", ["abab"])) == 258  # the bytes, one pair that occurs twice, the special token


def test_a_saved_tokenizer_is_taken(tokenizers, tmp_path) -> None:
    tokenizers["bpe:400"].save_pretrained(tmp_path / "first")
    loaded = load_tokenizer(tmp_path / "first")
    assert loaded("Hark!").input_ids == tokenizers["bpe:400"]("Hark!").input_ids
    loaded.save_pretrained(tmp_path / "second")
    for path in (tmp_path / "first").iterdir():
        assert (tmp_path / "second" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("spec", ["bytes", "bpe", "bpe:", "bpe:256", "bpe:-1", "bpe:4k", "byte:3", "no/such/folder"])
def test_unknown_specifications_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match=spec):
        load_tokenizer(spec, ["text"])


def test_a_folder_without_a_tokenizer_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match=r"tokenizer\.json is missing"):
        saved_tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {"type": "nonsense"}}'])
def test_a_damaged_tokenizer_is_refused(tmp_path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match="cannot be read"):
        saved_tokenizer(tmp_path)


def test_a_tokenizer_without_an_end_is_refused(tokenizers, tmp_path) -> None:
    tokenizers["byte"].save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    with pytest.raises(InputError, match="end-of-text"):
        saved_tokenizer(tmp_path)


def test_a_strangers_code_is_not_run(tokenizers, tmp_path, monkeypatch) -> None:
    tokenizers["byte"].save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    monkeypatch.setattr("builtins.input", lambda _: "y")  # a person who agrees to everything
    assert saved_tokenizer(tmp_path)("a").input_ids == [ord("a")]
    assert not (tmp_path / "ran").exists()
