"""Promise 1: a long text, which a layer reads piece by piece where nothing is trained, is the whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.nn import block
from tests.variants import make_model, tokens

from .promises import Mutation, contract
from .readings import CASES, Reading, far, model_of, per_case, read_in_chunks, read_whole, readings

EXACT = 1e-9

OTHER_DOCUMENT = Mutation(
    "nn/records.py",
    "segment = segment - self.segment[:, begin - 1 : begin]",
    "segment = segment - self.segment[:, begin : begin + 1] + 1",
    "every piece begins a document",
)
NO_END = Mutation(
    "nn/records.py",
    "length = (self.length - begin).clamp(0, end - begin)",
    "length = torch.full_like(self.length, end - begin)",
    "a row is as long as its piece",
)
NO_STATE = Mutation(
    "nn/block.py",
    "self._read(x[:, begin:end], piece, state, True, False)",
    "self._read(x[:, begin:end], piece, None, True, False)",
    "a piece is read without the state of those before",
)


@contract(1, breaks=(OTHER_DOCUMENT, NO_END, NO_STATE))
@pytest.mark.parametrize("case", CASES)
@per_case(3, len(CASES))
@given(reading=readings(st.integers(2, 60)), piece=st.sampled_from([1, 2, 3, 7, 8, 13, 31]))
def test_pieces_of_padded_and_packed_rows_give_the_whole(case: str, reading: Reading, piece: int) -> None:
    """Without a state, and with one that is read on from chunk to chunk."""
    model = model_of(case, num_experts=0)
    whole = read_whole(model, reading)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "PIECE", piece)
        assert far(read_whole(model, reading), whole, reading.valid) <= EXACT
        assert far(read_in_chunks(model, reading)[0], whole, reading.valid) <= EXACT


@contract(16)
def test_where_something_is_trained_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed again for gradients must be the same sums."""
    monkeypatch.setattr(block, "PIECE", 4)
    monkeypatch.setattr(block.Block, "_in_pieces", None)
    model = make_model("mixture", num_experts=0)
    model(tokens(1, 20))
    with torch.no_grad():
        model.train()(tokens(1, 20))
        model.eval()(tokens(1, 20), output_site=True, use_cache=False)
        with pytest.raises(TypeError):
            model(tokens(1, 20))
