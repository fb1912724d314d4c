"""Windows count every token of every text exactly once, each with the text before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import IGNORED, TokenStream, Windows
from sheafstate.errors import InputError


@st.composite
def streams(draw) -> TokenStream:
    lengths = draw(st.lists(st.integers(3, 15), min_size=1, max_size=6))
    starts = np.cumsum([0, *lengths[:-1]])
    return TokenStream(np.arange(sum(lengths), dtype=np.uint16), starts.astype(np.int64), num_bytes=0)


@st.composite
def layouts(draw) -> tuple[TokenStream, int, int]:
    context = draw(st.integers(1, 10))
    return draw(streams()), context, draw(st.integers(1, context))


def predicted(windows: Windows, rows: int = 3, parts: int = 1) -> list[tuple[int, int, int]]:
    """Each counted target with the number of tokens that it is predicted from, and the last of them."""
    found = []
    for part in range(parts):
        for batch in windows.batches(rows, part, parts):
            for ids, mask, targets in zip(batch.input_ids, batch.attention_mask, batch.targets, strict=True):
                assert mask.tolist() == sorted(mask.tolist(), reverse=True), "padding is on the right"
                for t in range(int(mask.sum())):
                    if targets[t] != IGNORED:
                        found.append((int(targets[t]), t + 1, int(ids[t])))
                assert (targets[mask == 0] == IGNORED).all()
    return sorted(found)


@given(layout=layouts(), rows=st.integers(1, 4), parts=st.integers(1, 3))
def test_every_token_is_counted_once(layout, rows: int, parts: int) -> None:
    stream, context, stride = layout
    windows = Windows.over(stream, context, stride)
    marks = {*stream.starts.tolist(), *(stream.ends - 1).tolist()}
    texts = [token for token in stream.tokens.tolist() if token not in marks]
    found = predicted(windows, rows, parts)
    assert [target for target, _, _ in found] == texts
    for target, before, last in found:
        start = stream.starts[stream.starts < target].max()
        assert last == target - 1
        assert min(target - start, context - stride + 1) <= before <= context


@given(stream=streams(), context=st.integers(1, 10))
def test_chunks_follow_one_another(stream: TokenStream, context: int) -> None:
    windows = Windows.over(stream, context)
    for document, (start, end) in enumerate(zip(stream.starts, stream.ends, strict=True)):
        mine = windows.documents == document
        read = np.concatenate(
            [b + np.arange(n) for b, n in zip(windows.begins[mine], windows.lengths[mine], strict=True)]
        )
        assert read.tolist() == list(range(start, end - 2)), "all but the last of the text and the mark after it"


def test_a_negative_number_is_a_row_of_padding() -> None:
    windows = Windows.over(TokenStream(np.arange(6, dtype=np.uint16), np.array([0]), 0), 8)
    batch = windows.batch(np.array([0, -1]))
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    assert batch.targets.tolist() == [[1, 2, 3, 4], [IGNORED] * 4]


@pytest.mark.parametrize("stride", [0, -1, 9])
def test_an_impossible_stride_is_refused(stride: int) -> None:
    with pytest.raises(InputError, match=rf"between 1 and the context \(8\), not {stride}"):
        Windows.over(TokenStream(np.arange(6, dtype=np.uint16), np.array([0]), 0), 8, stride)
