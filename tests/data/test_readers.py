"""Every source gives its documents as they are, or one sentence that says what is wrong with it."""

import json
import os
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from sheafstate.data import read_corpus, read_documents, split_documents
from sheafstate.errors import InputError


def test_the_packaged_text_is_whole() -> None:
    (text,) = read_documents("tinyshakespeare")
    assert len(text) == len(text.encode()) == 1_115_394
    assert len(set(text)) == 65


def test_the_packaged_text_is_split_as_elsewhere() -> None:
    corpus = read_corpus("tinyshakespeare", share=0.1)
    assert [len(text) for text in corpus.train] == [1_003_854]
    assert [len(text) for text in corpus.validation] == [111_540]


@pytest.mark.parametrize("raw", ["one\r\ntwo\rthree\n", "  spaces  ", "\x01\x7f", "漢字\u2028😀", "a\x0cb"])
def test_text_is_read_as_it_is(tmp_path: Path, raw: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(raw.encode())
    assert list(read_documents(path)) == [raw]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfword")
    assert list(read_documents(path)) == ["word"]


SEPARATED = [
    ("one\n<|endoftext|>\ntwo\n<|endoftext|>\n", ["one", "two"]),
    ("one\n\n<|endoftext|>\n\ntwo", ["one\n", "\ntwo"]),
    ("one\r\n<|endoftext|>\r\ntwo\n", ["one", "two\n"]),
    ("\none<|endoftext|>two\n", ["\none", "two\n"]),
    ("<|endoftext|>\n\n<|endoftext|><|endoftext|>one", ["one"]),
]


@pytest.mark.parametrize(("text", "documents"), SEPARATED)
def test_separators_part_documents(tmp_path: Path, text: str, documents: list[str]) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    assert list(read_documents(path)) == documents


def test_the_separator_is_an_option(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a\n\n\nb<|endoftext|>c")
    assert list(read_documents(path, separator="\n\n\n")) == ["a", "b<|endoftext|>c"]
    assert list(read_documents(path, separator="")) == list(read_documents(path, separator=None)) == [path.read_text()]


def test_json_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    texts = ["plain", "line\nbreaks\r\n", "raw \u2028 and \x85 in a string", "<|endoftext|>", ""]
    lines = [json.dumps({"id": number, "text": text}, ensure_ascii=False) for number, text in enumerate(texts)]
    path.write_bytes(("\n\n".join(lines) + "\n").encode())
    assert list(read_documents(path)) == texts[:-1]
    path.write_text('{"story": "told"}')
    assert list(read_documents(path, field="story")) == ["told"]


BAD_LINES = [
    ("{", "not JSON"),
    ("[1]", "list"),
    ('"text"', "str"),
    ('{"id": 3}', "'text' .*'id'"),
    ('{"text": 5}', "no text under 'text'"),
    ('{"text": null}', "no text under 'text'"),
    (r'{"text": "\ud800"}', "surrogate"),
    ("[" * 100_000, "not JSON"),
    ('{"text": ' + "9" * 5000 + "}", "not JSON|no text"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"text": "good"}\n\n' + line + "\n")
    with pytest.raises(InputError, match=f"data.jsonl, line 3 .*({reason})"):
        read_documents(path)


def test_a_folder_is_read_in_order(tmp_path: Path) -> None:
    for name, text in {"b.txt": "2", "a/z.txt": "1", "c.jsonl": '{"text": "3"}', "d.md": "", ".hidden/x": "no"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(read_documents(tmp_path)) == ["1", "2", "3"]


def test_a_dataset_on_disk_is_read(tmp_path: Path) -> None:
    texts = [f"document {number}" for number in range(2500)] + ["", None]
    Dataset.from_dict({"text": texts, "id": range(len(texts))}).save_to_disk(tmp_path / "data")
    documents = read_documents(tmp_path / "data")
    assert list(documents) == [text or "" for text in texts]
    assert [documents[0], documents[2499], documents[2500], len(documents)] == ["document 0", "document 2499", "", 2502]
    assert list(documents[10:12]) == ["document 10", "document 11"]


def test_a_datasets_own_split_is_measured_on(tmp_path: Path) -> None:
    parts = {"train": Dataset.from_dict({"text": ["t"]}), "validation": Dataset.from_dict({"text": ["v"]})}
    DatasetDict(parts).save_to_disk(tmp_path)
    corpus = read_corpus(tmp_path)
    assert (list(corpus.train), list(corpus.validation)) == (["t"], ["v"])
    with pytest.raises(InputError, match=r"no split 'test' .*train, validation"):
        read_documents(tmp_path, split="test")


def test_a_dataset_without_text_is_refused(tmp_path: Path) -> None:
    Dataset.from_dict({"number": [1]}).save_to_disk(tmp_path / "data")
    for field in ("text", "number"):
        with pytest.raises(InputError, match=rf"no text column '{field}' .*number"):
            read_documents(tmp_path / "data", field=field)
    next((tmp_path / "data").glob("*.arrow")).write_bytes(b"junk")
    with pytest.raises(InputError, match="not a dataset that can be read"):
        read_documents(tmp_path / "data")


def test_missing_empty_and_binary_files_are_refused(tmp_path: Path) -> None:
    empty, zero, latin = tmp_path / "empty.txt", tmp_path / "zero.bin", tmp_path / "latin.txt"
    empty.write_bytes(b"")
    zero.write_bytes(b"MZ\x90\x00\x03")
    latin.write_bytes("caf\u00e9".encode("latin-1"))
    (tmp_path / "folder").mkdir()
    for path, reason in (
        (tmp_path / "nowhere", "does not exist"),
        (empty, "holds no text"),
        (tmp_path / "folder", "holds no text"),
        (zero, "not text: byte 3 is zero"),
        (latin, "not UTF-8 text: byte 3 is 0xe9"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            read_documents(path)
        assert str(path) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("secret")
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        read_documents(path)


@pytest.mark.parametrize(
    ("lengths", "share", "border"),
    [([50, 40, 10], 0.1, 2), ([10, 10, 80], 0.1, 2), ([99, 1], 0.5, 1), ([1] * 10, 0.3, 7)],
)
def test_documents_are_split_at_the_nearest_border(lengths: list[int], share: float, border: int) -> None:
    documents = [chr(65 + number) * length for number, length in enumerate(lengths)]
    corpus = split_documents(documents, share)
    assert (list(corpus.train), list(corpus.validation)) == (documents[:border], documents[border:])


def test_one_document_is_cut_and_nothing_is_lost() -> None:
    corpus = split_documents(["abcdefghij"], 0.25)
    assert (corpus.train[0], corpus.validation[0]) == ("abcdefg", "hij")
    assert split_documents(["ab"], 0).validation == ()


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="share must be at least 0 and below 1"):
        split_documents(["text"], share)


def test_a_text_too_short_to_split_is_refused() -> None:
    with pytest.raises(InputError, match="1 characters is too short"):
        split_documents(["a"], 0.5)
