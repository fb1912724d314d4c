"""Promise 1: any split into chunks gives the logits of the whole, padded and packed rows included."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.variants import VARIANTS, tokens

from .promises import Mutation, contract
from .readings import BLOCK, CASES, KINDS, Reading, cuts, far, model_of, per_case, read_in_chunks, read_whole, readings

EXACT = 1e-9
cases = pytest.mark.parametrize("case", CASES)

PADDED_RING = Mutation(
    "nn/transport_local.py",
    "index = rows.length[:, None] - self.window + torch",
    "index = torch.full_like(rows.length[:, None], values.shape[1]) - self.window + torch",
    "the window keeps the last columns of a chunk, padding included",
)
LEAKING_TAIL = Mutation(
    "nn/dynamics.py",
    "return rows.final(torch.cat([tail.to(x.dtype), x], 1), count) * same[..., None]",
    "return rows.final(torch.cat([tail.to(x.dtype), x], 1), count)",
    "the convolution's tail reaches from one document into the next across the end of a chunk",
)
STALE_BUCKET = Mutation(
    "rows.py",
    "settled = None if bool(start.any()) else int(offset.min())",
    "settled = 0",
    "a single step that opens a document leaves the buckets full",
)
OLD_ORDER = Mutation(
    "nn/transport_retrieval.py",
    "oldest = torch.where(state.count >= self.degree, state.count % self.degree, 0)",
    "oldest = torch.zeros_like(state.count)",
    "a full bucket that was carried over is read in the order of its slots, not of age",
)
ALWAYS_SET = Mutation(
    "nn/transport_anchors.py",
    "written, patch = torch.cat([age <= held, written], 1)",
    "written, patch = torch.cat([age <= held.clamp(min=before), written], 1)",
    "the ring of first positions counts as full from the start",
)


@contract(1, breaks=(PADDED_RING, LEAKING_TAIL, STALE_BUCKET))
@cases
@per_case(3, len(CASES))
@given(reading=readings(st.integers(1, 40) | st.sampled_from([63, 64, 65, 127, 128, 129, 130]) | st.integers(1, 130)))
def test_any_split_of_padded_and_packed_rows_gives_the_whole(case: str, reading: Reading) -> None:
    model, width = model_of(case), reading.ids.shape[1]
    chunked, state = read_in_chunks(model, reading)
    assert far(chunked, read_whole(model, reading), reading.valid) <= EXACT
    assert {layer.get_seq_length() for layer in state.layers} == {width}


@contract(1, breaks=(OLD_ORDER, ALWAYS_SET))
@cases
@per_case(1, len(CASES))
@given(data=st.data())
def test_several_tokens_at_once_into_a_filled_state(case: str, data: st.DataObject) -> None:
    """Chunks of every length from 1 to beyond window and degree, one after the other, in an order drawn."""
    sizes = data.draw(st.permutations(range(1, 13)))
    ends = tuple(torch.tensor(sizes).cumsum(0).tolist())
    reading = Reading(tokens(2, ends[-1]), None, {}, ends, False)
    model = model_of(case)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading)) <= EXACT


@contract(1, breaks=OLD_ORDER)
@pytest.mark.parametrize("case", KINDS)
@per_case(1)
@given(data=st.data())
@pytest.mark.parametrize("width", [257, 1000])
def test_long_rows_in_chunks_give_the_whole(case: str, width: int, data: st.DataObject) -> None:
    near = st.sampled_from([BLOCK * n + d for n in range(1, 4) for d in (-1, 0, 1)])
    first = data.draw(near)
    ends = (first, *(first + end for end in data.draw(cuts(width - first, most=5))))
    reading = Reading(tokens(1, width), None, {}, ends, False)
    model = model_of(case)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading)) <= EXACT


@pytest.mark.slow
@contract(1, breaks=OLD_ORDER)
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("width", [*range(1, 131), 257, 1000])
def test_every_length_in_two_and_three_chunks_and_in_steps(name: str, width: int) -> None:
    model, ids = model_of(name), tokens(1, width, width)
    third = max(width // 3, 1)
    splits = [(width // 2, width), (third, 2 * third, width), (*range(1, min(width, 130)), width)]
    whole = read_whole(model, Reading(ids, None, {}, (width,), False))
    for ends in splits:
        distinct = tuple(dict.fromkeys(end for end in ends if 0 < end <= width))
        assert far(read_in_chunks(model, Reading(ids, None, {}, distinct, False))[0], whole) <= EXACT
