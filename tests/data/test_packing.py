"""Packing loses no token, doubles none, and keeps documents apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import IGNORED, PackedRows, TokenStream
from sheafstate.errors import InputError


@st.composite
def streams(draw) -> TokenStream:
    """Documents of at least the two marks, whose tokens are numbered through, so that each is known again."""
    lengths = draw(st.lists(st.integers(2, 12), min_size=1, max_size=8))
    starts = np.cumsum([0, *lengths[:-1]])
    return TokenStream(np.arange(sum(lengths), dtype=np.uint16), starts.astype(np.int64), num_bytes=0)


def whole(rows: PackedRows) -> list[dict[str, np.ndarray]]:
    return [rows[index] for index in range(len(rows))]


def document_of(stream: TokenStream, token: int) -> int:
    return int(np.searchsorted(stream.starts, token, side="right")) - 1


@given(stream=streams(), context=st.integers(2, 12), epoch=st.integers(0, 5), seed=st.integers(0, 3))
def test_no_token_is_lost_or_doubled(stream: TokenStream, context: int, epoch: int, seed: int) -> None:
    if len(stream) < context:
        return
    rows = PackedRows(stream, context, seed=seed)
    rows.set_epoch(epoch)
    seen = np.concatenate([row["input_ids"] for row in whole(rows)])
    assert len(seen) == len(set(seen.tolist())) == len(stream) // context * context
    assert len(seen) > len(stream) - context
    ring = (rows.shift + np.arange(len(seen))) % len(stream)
    assert seen.tolist() == stream.tokens[ring].tolist()


@given(stream=streams(), context=st.integers(2, 12), epoch=st.integers(0, 5))
def test_documents_are_told_apart(stream: TokenStream, context: int, epoch: int) -> None:
    if len(stream) < context:
        return
    by_id, by_position = (PackedRows(stream, context, documents=way) for way in ("document_ids", "position_ids"))
    for rows in (by_id, by_position):
        rows.set_epoch(epoch)
    for row, twin in zip(whole(by_id), whole(by_position), strict=True):
        ids, labels, documents = row["input_ids"], row["labels"], row["document_ids"]
        assert twin["input_ids"].tolist() == ids.tolist()
        assert documents[0] == 0
        for t in range(1, context):
            goes_on = ids[t] == ids[t - 1] + 1 and document_of(stream, ids[t]) == document_of(stream, ids[t - 1])
            assert documents[t] == documents[t - 1] + (not goes_on)
            assert labels[t] == (ids[t] if goes_on else IGNORED)
            assert twin["position_ids"][t] == (twin["position_ids"][t - 1] + 1 if goes_on else 0)
        assert labels[0] == IGNORED
        assert twin["position_ids"][0] == 0


def test_the_ring_closes_between_documents() -> None:
    """One document alone must not go on in itself where the ring closes."""
    rows = PackedRows(TokenStream(np.arange(10, dtype=np.uint16), np.array([0]), 0), 5)
    rows.shift = 8
    assert rows[0]["input_ids"].tolist() == [8, 9, 0, 1, 2]
    assert rows[0]["document_ids"].tolist() == [0, 0, 1, 1, 1]
    assert rows[0]["labels"].tolist() == [IGNORED, 9, IGNORED, 1, 2]


def test_epochs_are_placed_by_seed_and_number_alone() -> None:
    stream = TokenStream(np.arange(1000, dtype=np.uint16), np.array([0]), 0)

    def shifts(seed: int, epochs: list[int]) -> dict[int, int]:
        rows = PackedRows(stream, 10, seed=seed)
        found = {}
        for epoch in epochs:
            rows.set_epoch(epoch)
            found[epoch] = rows.shift
        return found

    assert shifts(1, [0, 1, 2, 3]) == shifts(1, [3, 2, 1, 0])
    assert shifts(1, [0]) == {0: 0}
    assert len({*shifts(1, [1, 2, 3]).values(), *shifts(2, [1, 2, 3]).values()}) > 4


def test_short_texts_are_refused() -> None:
    stream = TokenStream(np.arange(7, dtype=np.uint16), np.array([0]), 0)
    with pytest.raises(InputError, match="7 tokens, fewer than one row of 8"):
        PackedRows(stream, 8)
    with pytest.raises(InputError, match="at least 2 tokens, not 1"):
        PackedRows(stream, 1)
    with pytest.raises(IndexError):
        PackedRows(stream, 7)[1]
