"""Promise 6: a state serves truncated back-propagation; detaching it, and only that, stops the gradient."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from tests.variants import make_model

from .promises import Mutation, contract
from .readings import KINDS, Reading, per_case, readings

cases = pytest.mark.parametrize("case", KINDS)

NO_STOP = Mutation(
    "state.py", "return self._copy(torch.detach)", "return self._copy(torch.clone)", "detaching stops no gradient"
)
ALWAYS_STOPS = Mutation(
    "state.py",
    "self.state, self.is_initialized = state, True",
    "self.state, self.is_initialized = map_tensors(torch.detach, state), True",
    "no gradient flows through a state",
)
LOST_VALUES = Mutation(
    "nn/transport_local.py",
    "keys, values = state.entries.transpose(2, 3).to(k.dtype).unbind(1)",
    "keys, values = (t.detach() if i else t for i, t in enumerate(state.entries.transpose(2, 3).unbind(1)))",
    "no gradient flows into the values of the window",
)
UNUSED_IN_TRAINING = Mutation(
    "modeling.py",
    "if cache is None:\n            if use_cache is None:",
    "if cache is None or self.training:\n            if use_cache is None:",
    "a state given in training is ignored",
)


@dataclass(frozen=True)
class Gradients:
    """Gradients of the inputs' embeddings, chunk by chunk, and of the parameters."""

    inputs: list[torch.Tensor]
    parameters: dict[str, torch.Tensor]


def fresh(case: str, checkpointing: str) -> SheafStateForCausalLM:
    name, _, mode = case.partition("+")
    model = make_model(name, quantization=mode or "none").train()
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": checkpointing == "reentrant"})
    return model


def weights(reading: Reading) -> torch.Tensor:
    """What the loss adds the logits up with; nothing where a column is masked."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randn(*reading.ids.shape, 23, generator=generator, dtype=torch.float64)
    return drawn * reading.valid[..., None]


def gradients(model: SheafStateForCausalLM, inputs: list[torch.Tensor]) -> Gradients:
    zero = [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs]
    return Gradients(zero, {name: p.grad for name, p in model.named_parameters() if p.grad is not None})


def in_chunks(case: str, reading: Reading, stops: set[int], checkpointing: str = "") -> Gradients:
    """One backward pass over all chunks; the state is detached where the stops say so."""
    model, state, loss, inputs = fresh(case, checkpointing), None, 0.0, []
    for number, (begin, end) in enumerate(reading.chunks()):
        arguments = reading.arguments(begin, end)
        inputs.append(model.get_input_embeddings()(arguments.pop("input_ids")).detach().requires_grad_())
        if number in stops and state is not None:
            state = state.detach()
        output = model(inputs_embeds=inputs[-1], **arguments, cache=state, use_cache=True)
        state = output.cache
        loss = loss + (output.logits * weights(reading)[:, begin:end]).sum()
    loss.backward()
    return gradients(model, inputs)


def whole(case: str, reading: Reading, begin: int, end: int) -> Gradients:
    """Without chunks: what the loss of the columns from ``begin`` gives when those before it get no gradient."""
    model = fresh(case, "")
    arguments = reading.arguments(0, begin)
    state = None
    if begin:
        with torch.no_grad():
            state = model(**arguments, use_cache=True).cache
    arguments = reading.arguments(begin, end)
    x = model.get_input_embeddings()(arguments.pop("input_ids")).detach().requires_grad_()
    output = model(inputs_embeds=x, **arguments, cache=state, use_cache=bool(begin))
    (output.logits * weights(reading)[:, begin:end]).sum().backward()
    return gradients(model, [x])


def assert_equal(a: Gradients, b: Gradients) -> None:
    torch.testing.assert_close(torch.cat(a.inputs, 1), torch.cat(b.inputs, 1), rtol=1e-8, atol=1e-9)
    for name in a.parameters.keys() | b.parameters.keys():
        torch.testing.assert_close(a.parameters[name], b.parameters[name], rtol=1e-8, atol=1e-8, msg=name)


@contract(6, breaks=(ALWAYS_STOPS, LOST_VALUES))
@cases
@per_case(2)
@given(reading=readings(st.integers(6, 30), rows=2), checkpointing=st.sampled_from(["", "plain", "reentrant"]))
def test_the_gradient_through_states_is_that_of_the_whole(case: str, reading: Reading, checkpointing: str) -> None:
    """Padding, documents and checkpointing included; single steps and several tokens at once."""
    expected = whole(case, reading, 0, reading.ids.shape[1])
    assert_equal(in_chunks(case, reading, set(), checkpointing), expected)


@contract(6, breaks=(NO_STOP, UNUSED_IN_TRAINING))
@cases
@per_case(2)
@given(reading=readings(st.integers(6, 30), rows=2), stop=st.integers(0, 9))
def test_the_gradient_stops_where_the_state_is_detached(case: str, reading: Reading, stop: int) -> None:
    """Back-propagation in two stretches is the sum of each stretch's own; what lies before is only read."""
    number = min(stop, len(reading.cuts) - 1)
    border, width = [0, *reading.cuts][number], reading.ids.shape[1]
    got = in_chunks(case, reading, {number})
    parts = [whole(case, reading, border, width)]
    if border:
        cut = Reading(
            reading.ids[:, :border],
            None if reading.mask is None else reading.mask[:, :border],
            {name: values[:, :border] for name, values in reading.documents.items()},
            (border,),
            reading.mask_so_far,
        )
        parts.insert(0, _first(case, reading, cut))
    inputs = [x for part in parts for x in part.inputs]
    names = {name for part in parts for name in part.parameters}
    total = {name: sum(p.parameters[name] for p in parts if name in p.parameters) for name in names}
    assert_equal(got, Gradients(inputs, total))


def _first(case: str, reading: Reading, cut: Reading) -> Gradients:
    model, border = fresh(case, ""), cut.ids.shape[1]
    arguments = cut.arguments(0, border)
    x = model.get_input_embeddings()(arguments.pop("input_ids")).detach().requires_grad_()
    (model(inputs_embeds=x, **arguments, use_cache=False).logits * weights(reading)[:, :border]).sum().backward()
    return gradients(model, [x])
