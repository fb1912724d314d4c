"""Promise 3: states are stored, branched and restored bit for bit, and using one changes no other."""

import copy
import io
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from sheafstate.state import SheafStateCache
from tests.variants import tokens

from .promises import Mutation, contract
from .readings import KINDS, model_of, per_case

SHARED = Mutation(
    "state.py", "return self._copy(torch.clone)", "return self._copy(torch.detach)", "a snapshot shares its tensors"
)
SHARED_ROWS = Mutation(
    "state.py",
    "copy.rows = map_tensors(function, self.rows)",
    "copy.rows = self.rows",
    "a snapshot shares the rows' places",
)
LOST_LENGTH = Mutation(
    "state.py",
    "theirs.state, theirs.length = map_tensors(function, mine.state), mine.length",
    "theirs.state = map_tensors(function, mine.state)",
    "a copy begins to count columns anew",
)
IN_PLACE = Mutation(
    "state.py",
    "self._owned = None  # what two caches share, neither may write into",
    "pass",
    "a step writes into what two states share",
)

NO_DEEP_COPY = Mutation(
    "state.py",
    "memo[id(self)] = copied = self.snapshot()",
    "memo[id(self)] = copied = self.detach()",
    "a deep copy loses the gradient",
)

COPIES: dict[str, Callable[[SheafStateCache], SheafStateCache]] = {
    "snapshot": SheafStateCache.snapshot,
    "deepcopy": copy.deepcopy,
    "detach": SheafStateCache.detach,
}


@dataclass
class Branch:
    """A state, what it has read, and the logits that came of it."""

    state: SheafStateCache | None
    read: list[torch.Tensor] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)

    def fork(self, how: str) -> "Branch":
        """A branch that goes on from here."""
        return Branch(COPIES[how](self.state), list(self.read), list(self.logits))

    @torch.no_grad()
    def go_on(self, model: SheafStateForCausalLM, ids: torch.Tensor) -> None:
        """Read more. A step may write into what is this state's alone, anything longer leaves it as it was."""
        held = [] if self.state is None or ids.shape[1] == 1 else list(self.state.tensors())
        before = [tensor.clone() for tensor in held]
        output = model(ids, cache=self.state, use_cache=True)
        self.state = output.cache
        self.read.append(ids)
        self.logits.append(output.logits)
        assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


def replayed(model: SheafStateForCausalLM, branch: Branch) -> list[torch.Tensor]:
    """The logits of a branch that nobody ever forked."""
    alone = Branch(None)
    for ids in branch.read:
        alone.go_on(model, ids)
    return alone.logits


@contract(3, breaks=(IN_PLACE, LOST_LENGTH))
@pytest.mark.parametrize("case", KINDS)
@per_case(3)
@given(rows=st.integers(1, 2), first=st.integers(3, 20), seed=st.integers(0, 2**16), data=st.data())
def test_interleaved_branches_are_what_each_would_be_alone(
    case: str, rows: int, first: int, seed: int, data: st.DataObject
) -> None:
    """Branches fork from one another at any time and read in turns, one token or several."""
    model = model_of(case)
    trunk = Branch(None)
    trunk.go_on(model, tokens(rows, first, seed))
    branches = [trunk, trunk.fork("detach")]
    moves = st.tuples(st.integers(0, 3), st.sampled_from(["read", *COPIES]), st.sampled_from([1, 1, 2, 7]))
    for number, (which, what, length) in enumerate(data.draw(st.lists(moves, min_size=3, max_size=7))):
        branch = branches[which % len(branches)]
        if what == "read":
            branch.go_on(model, tokens(rows, length, seed + number))
        elif len(branches) < 4:
            branches.append(branch.fork(what))
    for branch in branches:
        assert branch.state.get_seq_length() == sum(ids.shape[1] for ids in branch.read)
        for mine, alone in zip(branch.logits, replayed(model, branch), strict=True):
            assert torch.equal(mine, alone)


def contents(state: SheafStateCache) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in state.tensors()]


@contract(3, breaks=(SHARED, SHARED_ROWS))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(first=st.integers(1, 20), then=st.integers(1, 20), how=st.sampled_from(["snapshot", "deepcopy"]))
def test_a_snapshot_is_restored_twice_and_touched_by_neither_use_nor_overwriting(
    case: str, first: int, then: int, how: str
) -> None:
    model, ids = model_of(case), tokens(2, first + then)
    with torch.no_grad():
        state = model(ids[:, :first], use_cache=True).cache
        stored = COPIES[how](state)
        before, source = contents(stored), list(state.tensors())
        used = model(ids[:, first:], cache=state).logits
        restored = [model(ids[:, first:], cache=COPIES[how](stored)).logits for _ in range(2)]
        for tensor in (*source, *state.tensors()):  # whoever owns a state may write into it
            tensor.zero_()
        restored.append(model(ids[:, first:], cache=stored.snapshot()).logits)
    assert all(torch.equal(used, again) for again in restored)
    assert all(torch.equal(a, b) for a, b in zip(stored.tensors(), before, strict=True))


@contract(3, breaks=LOST_LENGTH)
def test_a_state_survives_a_file() -> None:
    model, ids, file = model_of("mixture"), tokens(2, 20), io.BytesIO()
    with torch.no_grad():
        state = model(ids[:, :11], use_cache=True).cache
        torch.save(state.snapshot(), file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)  # a user's own file
        assert torch.equal(model(ids[:, 11:], cache=loaded).logits, model(ids[:, 11:], cache=state).logits)
    assert loaded.get_seq_length() == 20


@contract(3, breaks=NO_DEEP_COPY)
def test_a_state_that_carries_gradients_can_be_copied() -> None:
    model, ids = model_of("mixture"), tokens(1, 12)
    state = model(ids[:, :6], use_cache=True).cache
    copied = copy.deepcopy(state)
    assert any(tensor.requires_grad for tensor in copied.tensors())
    assert torch.equal(model(ids[:, 6:], cache=copied).logits, model(ids[:, 6:], cache=state).logits)
