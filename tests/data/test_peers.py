"""Streams, rows and windows hold what ``datasets`` and transformers' own recipes make of the same texts.

Twice the same, by other people's code: texts tokenized by ``Dataset.map``, concatenated and cut into blocks as
transformers' example ``run_clm`` does, and documents laid end to end by ``DataCollatorWithFlattening``.
"""

from collections.abc import Iterator
from itertools import chain

import datasets
import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import DataCollatorWithFlattening

from sheafstate.data import IGNORED, PackedRows, TokenStream, Windows, tokens
from tests.contract.promises import Mutation, contract
from tests.variants import examples

from .conftest import SPECS, TRAPS

specs = pytest.mark.parametrize("spec", SPECS)
TEXTS = st.lists(st.text(max_size=30) | st.sampled_from(TRAPS), min_size=1, max_size=8).filter(any)

UNMARKED = Mutation(
    "data/tokens.py",
    "marks = () if number == current else (begin,) if current < 0 else (end, begin)",
    "marks = () if number == current else (begin,) if current < 0 else (end,)",
    "a document begins without its mark",
)
OVERLAPPING = Mutation(
    "data/packing.py",
    "begin = (self.shift + index * self.context) % len(self.stream)",
    "begin = (self.shift + index * (self.context - 1)) % len(self.stream)",
    "a row begins with the last token of the row before",
)
LEAKING = Mutation(
    "data/packing.py",
    "first[self.stream.starts[low:high] - begin] = True",
    "first[self.stream.starts[low : high - 1] - begin] = True",
    "the last document of a row is taken for part of the one before",
)
LABELLED = Mutation(
    "data/packing.py",
    '"labels": np.where(first, IGNORED, ids)',
    '"labels": ids',
    "the first token of a document is to be predicted",
)


@pytest.fixture(autouse=True, scope="module")
def _no_bars() -> Iterator[None]:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def tokenized(tokenizer, texts: list[str]) -> Dataset:
    """A row of ids a text, with the marks around it."""
    mark = tokenizer.eos_token_id

    def encode(batch: dict) -> dict:
        ids = tokenizer(batch["text"], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return {"input_ids": [[mark, *row, mark] for row in ids]}

    rows = Dataset.from_dict({"text": [text for text in texts if text]})
    return rows.map(encode, batched=True, remove_columns=["text"], keep_in_memory=True)


def grouped(rows: Dataset, block: int) -> Dataset:
    """Blocks of one length over the concatenation of all rows; what is left at the end is dropped."""

    def group(batch: dict) -> dict:
        joined = {name: list(chain.from_iterable(parts)) for name, parts in batch.items()}
        total = len(joined["input_ids"]) // block * block
        return {name: [part[i : i + block] for i in range(0, total, block)] for name, part in joined.items()}

    return rows.map(group, batched=True, batch_size=None, keep_in_memory=True)


@contract(8, breaks=UNMARKED)
@specs
@examples(6)
@given(texts=TEXTS, piece=st.sampled_from([1, 7, 1 << 16]))
def test_a_stream_holds_the_ids_of_a_mapped_dataset(spec: str, texts: list[str], piece: int, tokenizers) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_PIECE", piece)
        stream = TokenStream.build(tokenizers[spec], texts)
    theirs = tokenized(tokenizers[spec], texts)["input_ids"]
    assert [stream.tokens[a:b].tolist() for a, b in zip(stream.starts, stream.ends, strict=True)] == list(theirs)


@contract(8, breaks=OVERLAPPING)
@specs
@examples(6)
@given(texts=TEXTS, context=st.integers(2, 20))
def test_rows_are_the_blocks_of_run_clm(spec: str, texts: list[str], context: int, tokenizers) -> None:
    stream = TokenStream.build(tokenizers[spec], texts)
    context = min(context, len(stream))
    rows = PackedRows(stream, context)
    blocks = grouped(tokenized(tokenizers[spec], texts), context)["input_ids"]
    assert [rows[index]["input_ids"].tolist() for index in range(len(rows))] == list(blocks)


@contract(8, breaks=(LEAKING, LABELLED))
@examples(15)
@given(texts=TEXTS, context=st.integers(2, 40), whole=st.booleans())
def test_rows_are_what_the_flattening_collator_makes(texts: list[str], context: int, whole: bool, tokenizers) -> None:
    """Of the documents of a row, the pieces that its borders cut off being documents of their own."""
    tokenizer = tokenizers["byte"]
    stream = TokenStream.build(tokenizer, texts)
    context = len(stream) if whole else min(context, len(stream))
    by_id, by_position = (PackedRows(stream, context, documents=way) for way in ("document_ids", "position_ids"))
    collate = DataCollatorWithFlattening(return_seq_idx=True)
    numbered = [(n, token) for n, row in enumerate(tokenized(tokenizer, texts)["input_ids"]) for token in row]
    for index in range(len(by_id)):
        block = numbered[index * context : (index + 1) * context]
        documents = [[t for n, t in block if n == number] for number in dict.fromkeys(n for n, _ in block)]
        theirs = collate([{"input_ids": ids} for ids in documents])
        ours = by_id[index] | by_position[index]
        for name, other in (("input_ids",) * 2, ("labels",) * 2, ("position_ids",) * 2, ("document_ids", "seq_idx")):
            assert ours[name].tolist() == theirs[other][0].tolist(), name


@specs
@examples(6)
@given(texts=TEXTS, context=st.integers(1, 20))
def test_windows_are_the_blocks_of_each_document(spec: str, texts: list[str], context: int, tokenizers) -> None:
    windows = Windows.over(TokenStream.build(tokenizers[spec], texts), context)
    found = windows.batch(np.arange(len(windows)))
    pairs = []
    for row in tokenized(tokenizers[spec], texts)["input_ids"]:
        read, targets = row[:-2], row[1:-1]
        pairs += [(read[i : i + context], targets[i : i + context]) for i in range(0, len(read), context)]
    for (read, expected), ids, mask, targets in zip(
        pairs, found.input_ids, found.attention_mask, found.targets, strict=True
    ):
        assert ids[mask == 1].tolist() == read
        assert targets[targets != IGNORED].tolist() == expected
