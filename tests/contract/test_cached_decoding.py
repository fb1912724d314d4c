"""Promise 2: decoding far beyond the window equals the uncached result, with one state and one amount of work."""

import statistics
import time
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from sheafstate import SheafStateForCausalLM
from sheafstate.state import SheafStateCache
from tests.variants import VARIANTS, tokens

from .promises import Mutation, contract
from .readings import CASES, KINDS, Reading, far, masks, model_of, per_case, read_in_chunks, read_whole

SHORT, LONG, LONGEST = 128, 4096, 32_768
PIECE = 2048

FIRST_COLUMNS = Mutation(
    "rows.py",
    "mask = mask[:, mask.shape[1] - length :].to(device).bool()",
    "mask = mask[:, :length].to(device).bool()",
    "a mask of all columns so far is read from its beginning",
)
LOST_PLACE = Mutation(
    "rows.py",
    "offset = torch.where(opened < 0, before.position[:, None] + index, index - opened)",
    "offset = torch.where(opened < 0, before.position[:, None], index - opened)",
    "positions inside a chunk that goes on with a document are all its first",
)
MASKED_STEP = Mutation(
    "rows.py",
    "if length == 1 and state is not None and order is None and _may_look()",
    "if length == 1 and state is not None and _may_look()",
    "a masked step pushes the pending entry",
)
GROWING = Mutation(
    "nn/transport.py",
    'CompleteReader if config.site == "complete" else LocalReader',
    'CompleteReader if config.site != "sheaf" else LocalReader',
    "windowed heads keep every key",
)
SLOW_WAY = Mutation(
    "nn/transport_retrieval.py",
    "if state is not None and site.rows.is_step:",
    "if state is not None and site.rows.is_step and int(state.count.sum()) < 1000:",
    "a decoding step lays out every bucket again once much was written",
)


@contract(2, breaks=(FIRST_COLUMNS, MASKED_STEP))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(
    prompt=st.integers(1, 12),
    window=st.sampled_from([2, 4]),
    rows=st.integers(1, 3),
    so_far=st.booleans(),
    data=st.data(),
)
def test_decoding_three_windows_past_the_window_equals_the_uncached_result(
    case: str, prompt: int, window: int, rows: int, so_far: bool, data: st.DataObject
) -> None:
    """Steps of one token after a prompt, rows padded on any side and some of them ended on the way."""
    width = prompt + 4 * window
    mask = data.draw(masks(rows, width))
    ends = (prompt, *range(prompt + 1, width + 1))
    reading = Reading(tokens(rows, width, data.draw(st.integers(0, 99))), mask, {}, ends, so_far)
    model = model_of(case, window=window)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading), reading.valid) <= 1e-9


def filled(model: SheafStateForCausalLM, length: int) -> SheafStateCache:
    """A state after so many tokens, read in pieces."""
    state = None
    with torch.no_grad():
        for piece in tokens(1, length).split(PIECE, 1):
            state = model(piece, cache=state, use_cache=True, logits_to_keep=1).cache
    return state


class Operations(TorchDispatchMode):
    """How often each operation ran on tensors of each shape: work that grew would show in one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        sizes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        self.seen[(str(func), *sizes)] += 1
        return func(*args, **(kwargs or {}))


def step(model: SheafStateForCausalLM, state: SheafStateCache) -> tuple[Counter[tuple], int]:
    """Operations and floating-point operations of one more token."""
    token, mask = tokens(1, 1, 5), torch.ones(1, 1, dtype=torch.long)
    with torch.no_grad():  # a table of rotations is made the first time that a kind of model steps
        model(token, attention_mask=mask, cache=state.snapshot())
    with torch.no_grad(), Operations() as operations:
        model(token, attention_mask=mask, cache=state.snapshot())
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        model(token, attention_mask=mask, cache=state.snapshot())
    return operations.seen, flops.get_total_flops()


def shapes(state: SheafStateCache) -> list[tuple]:
    return [(tensor.shape, tensor.dtype) for tensor in state.tensors()]


def hold_one_size_and_one_work(name: str, longest: int) -> None:
    model = model_of(name, torch.float32, num_layers=1)
    short, long = filled(model, SHORT), filled(model, longest)
    assert long.get_seq_length() == longest
    assert shapes(long) == shapes(short)
    assert long.num_bytes() == short.num_bytes()
    assert step(model, long) == step(model, short)


BOUNDED = [case for case in CASES if case in VARIANTS and case != "complete"]


@contract(2, breaks=(GROWING, SLOW_WAY))
@pytest.mark.parametrize("name", BOUNDED)
def test_state_and_work_of_a_step_are_those_of_a_short_context(name: str) -> None:
    hold_one_size_and_one_work(name, LONG)


@contract(2, breaks=SLOW_WAY)
def test_state_and_work_of_a_step_after_32768_tokens_are_those_after_128() -> None:
    hold_one_size_and_one_work("mixture", LONGEST)


@pytest.mark.slow
@contract(2, breaks=GROWING)
@pytest.mark.parametrize("name", BOUNDED)
def test_every_type_decodes_after_32768_tokens_as_after_128(name: str) -> None:
    hold_one_size_and_one_work(name, LONGEST)
    model = model_of(name, torch.float32, num_layers=1)
    states = {length: filled(model, length) for length in (SHORT, LONGEST)}
    seconds: dict[int, list[float]] = {SHORT: [], LONGEST: []}
    with torch.no_grad():
        for _ in range(60):  # in turns, so that what else the machine does meets both
            for length, state in states.items():
                begun = time.perf_counter()
                model(tokens(1, 1), cache=state)
                seconds[length].append(time.perf_counter() - begun)
    assert statistics.median(seconds[LONGEST]) < 1.25 * statistics.median(seconds[SHORT])


@contract(2, breaks=LOST_PLACE)
@pytest.mark.parametrize("name", ["complete", "instruction", "mixture"])
def test_only_the_complete_cover_keeps_every_position(name: str) -> None:
    """The diagnosis' state grows by one entry a position; that of the others not at all."""
    model = model_of(name)
    sizes = [filled(model, length).num_bytes() for length in (20, 21, 30)]
    grows = 2 * (2 * 3 * 4 * 8 + 1) if name == "complete" else 0  # layers x (key and value of 3 heads, one flag)
    assert [size - sizes[0] for size in sizes] == [0, grows, 10 * grows]
    ids = tokens(1, 40)
    reading = Reading(ids, None, {}, (20, 31, 40), False)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading)) <= 1e-9
