"""Promise 5: identical calls give identical results; modules remember nothing of a call."""

import hashlib
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from sheafstate import SheafStateForCausalLM
from sheafstate.nn.records import tensors_of
from tests.variants import make_model, tokens

from .promises import Mutation, contract
from .readings import KINDS, per_case

LEFT_LYING = Mutation(
    "nn/block.py",
    "kept = BlockState(dynamics, transport) if keep_state else None",
    "self.last_site = site\n        kept = BlockState(dynamics, transport) if keep_state else None",
    "a layer keeps the site of its last call",
)
LAST_STATE = Mutation(
    "modeling.py",
    "return SheafStateCache(len(self.layers)) if use_cache else None",
    'return self.__dict__.setdefault("kept", SheafStateCache(len(self.layers))) if use_cache else None',
    "a call without a state goes on from an earlier call's",
)
COUNTED = Mutation(
    "modeling.py",
    'model_kwargs["cache"] = SheafStateCache(self.config.num_layers)',
    'model_kwargs["cache"] = self.last_state = SheafStateCache(self.config.num_layers)',
    "generation leaves its state on the model",
)
DRIFTING = Mutation(
    "nn/site.py",
    "log_unity = unity.clamp(min=SMALLEST_UNITY).log()",
    "log_unity = unity.clamp(min=SMALLEST_UNITY).log()\n            self.directions += 1e-6",
    "a buffer moves with every call",
)


def of_value(value: object) -> object:
    """Something that is equal for equal contents, through containers and tensors."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().contiguous().flatten().view(torch.uint8)
        return tuple(value.shape), value.dtype, value.requires_grad, hashlib.sha256(plain.numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: of_value(item) for key, item in value.items() if not isinstance(item, torch.nn.Module)}
    if isinstance(value, list | tuple | set):
        return [of_value(item) for item in value]
    if hasattr(value, "to_dict"):
        return repr(value.to_dict())
    return (type(value), value) if isinstance(value, str | int | float | None) else (type(value), id(value))


def memory(model: torch.nn.Module) -> dict[str, object]:
    """All that is found on the modules of a tree."""
    return {name: of_value(vars(module)) for name, module in model.named_modules()}


def everything(output: object) -> list[torch.Tensor]:
    """All tensors of an output: logits, states, sites, hidden streams."""
    found = []
    for value in dict(output).values():
        if hasattr(value, "tensors"):
            found += [tensor.clone() for tensor in value.tensors()]
        else:
            found += tensors_of(value)
    return found


def generate(model: SheafStateForCausalLM, ids: torch.Tensor, **options: object) -> list[torch.Tensor]:
    torch.manual_seed(3)
    settings = GenerationConfig(max_new_tokens=3, pad_token_id=0, **options)
    return [model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)]


def train(model: SheafStateForCausalLM, ids: torch.Tensor) -> list[torch.Tensor]:
    try:
        return everything(model.train()(ids, labels=ids))
    finally:
        model.eval()


CALLS: dict[str, Callable[[SheafStateForCausalLM, torch.Tensor], list[torch.Tensor]]] = {
    "read": lambda model, ids: everything(model(ids, use_cache=True)),
    "site": lambda model, ids: everything(model(ids, output_site=True, output_hidden_states=True)),
    "chunk": lambda model, ids: everything(model(ids, cache=model(ids, use_cache=True).cache)),
    "train": train,
    "greedy": generate,
    "sample": lambda model, ids: generate(model, ids, do_sample=True),
    "beams": lambda model, ids: generate(model, ids, num_beams=2),
}


@contract(5, breaks=(LEFT_LYING, LAST_STATE, COUNTED, DRIFTING))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(
    call=st.sampled_from([*CALLS]),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40)),
    between=st.lists(st.tuples(st.sampled_from([*CALLS]), st.integers(1, 2), st.integers(1, 70)), max_size=3),
)
def test_calls_leave_nothing_behind_and_repeat_themselves(
    case: str, call: str, shape: tuple[int, int], between: list[tuple[str, int, int]]
) -> None:
    """Whatever is called in between, in whatever shape, the modules hold what they held and the answer is the same."""
    name, _, mode = case.partition("+")
    model = make_model(name, torch.float32, quantization=mode or "none")
    before = memory(model)
    first = [tensor.clone() for tensor in CALLS[call](model, tokens(*shape))]
    assert memory(model) == before
    for other, rows, width in between:
        CALLS[other](model, tokens(rows, width, 4))
        assert memory(model) == before
    again = CALLS[call](model, tokens(*shape))
    assert len(first) == len(again)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
