"""Promise 3: the rows of a state can be reordered, repeated, chosen and forgotten; it cannot be cut back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.state import SheafStateCache
from tests.variants import make_model

from .promises import Mutation, contract
from .readings import KINDS, Reading, far, model_of, per_case, read_in_chunks, read_whole, readings

TILED = Mutation(
    "state.py",
    "self._map_rows(lambda tensor: tensor.repeat_interleave(repeats, 0))",
    "self._map_rows(lambda tensor: tensor.repeat(repeats))",
    "repeated rows keep the places of other rows",
)
UNTURNED = Mutation(
    "state.py",
    "self._map_rows(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))",
    "pass",
    "reordering leaves the rows' places where they were",
)
REMEMBERED = Mutation(
    "state.py",
    "self.rows, self.begun, self._owned, self._torn = None, False, None, False",
    "self.begun, self._owned, self._torn = False, None, False",
    "a reset state remembers where its rows stood",
)
SILENT_CROP = Mutation(
    "state.py",
    '        raise ValueError(\n            "a Sheaf-State cache cannot be cropped;',
    '        str(\n            "a Sheaf-State cache cannot be cropped;',
    "cutting back is ignored",
)


def change(data: st.DataObject, state: SheafStateCache, held: list[int]) -> list[int]:
    """Apply a drawn operation to the rows; return which of the first rows each is now."""
    what = data.draw(st.sampled_from(["reorder", "repeat", "select", "nothing"]))
    if what == "reorder":  # beams are chosen with repetition
        order = data.draw(st.lists(st.integers(0, len(held) - 1), min_size=len(held), max_size=len(held)))
        state.reorder_cache(torch.tensor(order))
    elif what == "repeat":
        times = data.draw(st.integers(1, 2))
        order = [row for row in range(len(held)) for _ in range(times)]
        state.batch_repeat_interleave(times)
    elif what == "select":
        order = data.draw(st.lists(st.integers(0, len(held) - 1), min_size=1, max_size=4))
        state.batch_select_indices(torch.tensor(order))
    else:
        order = list(range(len(held)))
        state.layers[0].offload()
        state.layers[0].prefetch()
    return [held[row] for row in order]


@contract(3, breaks=(TILED, UNTURNED))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(reading=readings(st.integers(2, 30)), data=st.data())
def test_rows_go_on_as_what_they_are(case: str, reading: Reading, data: st.DataObject) -> None:
    """Unequal rows with documents; their order changes between chunks, and each row's logits stay its own."""
    model, whole = model_of(case), read_whole(model_of(case), reading)
    state, held = None, list(range(reading.ids.shape[0]))
    for begin, end in reading.chunks():
        rows = torch.tensor(held)
        given_ = {name: values[rows] for name, values in reading.arguments(begin, end).items()}
        with torch.no_grad():
            output = model(**given_, cache=state, use_cache=True)
        state = output.cache
        assert far(output.logits, whole[rows, begin:end], reading.valid[rows, begin:end]) <= 1e-9
        if len(held) < 8:
            held = change(data, state, held)
        assert state.batch_size == len(held)
        assert {layer.get_seq_length() for layer in state.layers} == {end}


@contract(3, breaks=(REMEMBERED, SILENT_CROP))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(first=readings(st.integers(1, 20)), second=readings(st.integers(1, 20)), back=st.integers(0, 3))
def test_a_state_starts_anew_but_cannot_be_cut_back(case: str, first: Reading, second: Reading, back: int) -> None:
    model = model_of(case)
    _, state = read_in_chunks(model, first)
    before = [tensor.clone() for tensor in state.tensors()]
    with pytest.raises(ValueError, match="snapshot"):
        state.crop(back)
    assert all(torch.equal(a, b) for a, b in zip(state.tensors(), before, strict=True))
    state.reset()
    assert (state.get_seq_length(), state.batch_size, state.num_bytes()) == (0, -1, 0)
    logits, again = read_in_chunks(model, second, state)
    fresh, _ = read_in_chunks(model, second)
    assert again is state
    assert torch.equal(logits, fresh)


@contract(3, breaks=REMEMBERED)
def test_a_forgotten_state_serves_another_model() -> None:
    reading = Reading(torch.arange(8)[None], None, {}, (3, 8), False)
    _, state = read_in_chunks(model_of("mixture"), reading)
    state.reset()
    other = make_model("mixture", window=7)
    assert torch.equal(read_in_chunks(other, reading, state)[0], read_in_chunks(other, reading)[0])
