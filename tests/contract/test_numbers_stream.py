"""Promise 12: a stream of 100,000 tokens ends as shorter runs do, and no counter of it overflows."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from sheafstate.nn.block import BlockState
from sheafstate.state import SheafStateCache
from tests.variants import SMALL, VOCABULARY, make_model

from .promises import Mutation, contract
from .readings import CASES, far, model_of, per_case

LENGTH, PIECE, LATE = 100_000, 4999, 99_000
FORGETTING = [case for case in CASES if case != "complete"]
"""Models whose state does not grow: the complete site keeps every key."""

NARROW_STATE = Mutation(
    "ops/scan.py",
    "return outputs.flatten(1, 2)[:, :length], state",
    "return outputs.flatten(1, 2)[:, :length], state.bfloat16().to(dtype)",
    "the state between two calls is rounded to bfloat16",
)
NARROW_POSITION = Mutation(
    "rows.py",
    "position=at_end(offset + 1, before.position)",
    "position=at_end((offset + 1).int().long(), before.position)",
    "positions are counted in 32 bits",
)
NARROW_COUNT = Mutation(
    "nn/transport_retrieval.py",
    "oldest = torch.where(state.count >= self.degree, state.count % self.degree, 0)",
    "oldest = torch.where(state.count.int() >= self.degree, state.count.int() % self.degree, 0)",
    "entries of a bucket are counted in 32 bits",
)
NARROW_COLUMN = Mutation(
    "rows.py",
    "columns = past + (index.expand(shape) if order is None else order)",
    "columns = (past + (index.expand(shape) if order is None else order)).int().long()",
    "columns are counted in 32 bits",
)
STALE_RING = Mutation(
    "nn/transport_local.py",
    "return rows.final(values, before)",
    "return values[:, :before]",
    "the ring keeps the oldest keys",
)


@torch.no_grad()
def stream(
    model: SheafStateForCausalLM, ids: torch.Tensor, keep: int, piece: int = PIECE, **borders: torch.Tensor
) -> tuple[torch.Tensor, SheafStateCache]:
    """Logits of the last positions of a row that is read in pieces, and the state behind it."""
    state, kept = None, []
    for begin in range(0, ids.shape[1], piece):
        end = min(begin + piece, ids.shape[1])
        given = {name: values[:, begin:end] for name, values in borders.items()}
        wanted = max(end - max(begin, ids.shape[1] - keep), 1)
        output = model(ids[:, begin:end], cache=state, use_cache=True, logits_to_keep=wanted, **given)
        state = output.cache
        kept.append(output.logits)
    return torch.cat(kept, 1)[:, -keep:], state


def text(seed: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(seed))


@contract(12, breaks=STALE_RING)
@pytest.mark.parametrize("name", ["local", "window"])
def test_a_long_stream_ends_as_its_receptive_field(name: str) -> None:
    """What lies further back than all windows together has left nothing."""
    model, ids, count = model_of(name), text(1), 200
    field = SMALL["num_layers"] * (SMALL["window"] - 1)
    long, _ = stream(model, ids, count)
    with torch.no_grad():
        short = model(ids[:, -count - field :], use_cache=False).logits[:, field:]
    assert far(long, short) <= 1e-9


COLUMN = torch.arange(LENGTH)[None]
BORDERS = {"document_ids": (COLUMN >= LATE).long(), "position_ids": COLUMN - LATE * (COLUMN >= LATE)}


def late_document(case: str, *told: str) -> None:
    """A document that begins at position 99,000 of a stream is what it is alone, and everything is counted."""
    model, ids, count = model_of(case), text(2), LENGTH - LATE
    for borders in ({name: BORDERS[name]} for name in told):
        late, state = stream(model, ids, count, **borders)
        with torch.no_grad():
            alone = model(ids[:, LATE:], use_cache=True)
        assert far(late, alone.logits) <= 1e-9
        assert {layer.get_seq_length() for layer in state.layers} == {LENGTH}
        assert (state.rows.seen.item(), state.rows.position.item()) == (LENGTH, count)
        tensors = zip(state.tensors(), alone.cache.tensors(), strict=True)
        assert [a.shape for a, _ in tensors] == [b.shape for b in alone.cache.tensors()]


@contract(12, breaks=STALE_RING)
def test_a_document_begun_late_in_a_stream_is_a_document_alone() -> None:
    late_document("mixture", "position_ids")


@pytest.mark.slow
@contract(12)
@pytest.mark.parametrize("case", FORGETTING)
def test_a_document_of_any_model_begun_late_is_a_document_alone(case: str) -> None:
    late_document(case, *BORDERS)


@contract(12, breaks=NARROW_STATE)
@pytest.mark.parametrize("name", ["syntax", "workspace", "window"])
def test_a_stream_in_single_precision_does_not_drift(name: str) -> None:
    """Its last logits are those of float64, read in other pieces."""
    model, ids = make_model(name, torch.float32, num_experts=0), text(3)
    near, _ = stream(model, ids, 1000)
    exact, _ = stream(model.double(), ids, 1000, 2003)
    assert (near - exact).abs().max() <= 1e-4 * exact.abs().max()


def moved(state: SheafStateCache, by: int, degree: int) -> SheafStateCache:
    """A state as if so many more tokens had been read: counters go on, all else stays."""
    late = state.snapshot()
    rows = late.rows
    assert rows is not None
    late.rows = replace(
        rows,
        position=rows.position + by,
        seen=rows.seen + by,
        last_id=torch.where(rows.last_id >= 0, rows.last_id + by, rows.last_id),
        last_column=rows.last_column + by,
    )
    for layer in late.states:
        layer.length += by
        transport = layer.state.transport
        if transport.retrieval is not None:
            count = transport.retrieval.count
            full = torch.where(count >= degree, count + by // degree * degree, count)
            transport = replace(transport, retrieval=replace(transport.retrieval, count=full))
        layer.state = BlockState(layer.state.dynamics, transport)
    return late


@contract(12, breaks=(NARROW_POSITION, NARROW_COUNT, NARROW_COLUMN))
@pytest.mark.parametrize("case", FORGETTING)
@per_case(2)
@given(
    by=st.sampled_from([2**31 - 40, 2**31, 2**33 + 1, 2**52]),
    sizes=st.lists(st.sampled_from([7, 1, 1, 2, 30]), min_size=3, max_size=6),
    numbered=st.booleans(),
    seed=st.integers(0, 2**16),
)
@torch.no_grad()
def test_positions_far_beyond_32_bits_change_nothing(
    case: str, by: int, sizes: list[int], numbered: bool, seed: int
) -> None:
    """A state whose counters stand near or beyond 2**31 goes on as the same state with small ones."""
    model, begun = model_of(case), 60
    ids = torch.randint(VOCABULARY, (2, begun + sum(sizes)), generator=torch.Generator().manual_seed(seed))
    gap = torch.ones_like(ids)
    gap[0, begun : begun + 2] = 0  # a masked gap where a call begins, over which positions go on
    position = torch.arange(ids.shape[1])[None]
    first = {"position_ids": position[:, :begun]} if numbered else {}
    early = model(ids[:, :begun], use_cache=True, **first).cache
    late = moved(early, by, SMALL["retrieval_degree"])
    begin = begun
    for size in sizes:
        end, logits = begin + size, []
        for state, offset in ((early, 0), (late, by)):
            given = {"position_ids": position[:, begin:end] + offset} if numbered else {}
            given["attention_mask"] = gap[:, begin:end]
            logits.append(model(ids[:, begin:end], cache=state, **given).logits)
        assert torch.equal(*logits)
        begin = end
    assert (late.rows.position - early.rows.position == by).all()
    assert late.get_seq_length() == early.get_seq_length() + by
