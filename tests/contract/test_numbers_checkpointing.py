"""Promise 16: activations that are computed again change neither loss nor gradients, however that is asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from sheafstate.errors import InputError
from sheafstate.nn.block import Block
from tests.variants import make_model

from .promises import Mutation, contract
from .readings import CASES, Reading, per_case, readings

LAYERS = 3

EVERY_LAYER = Mutation(
    "modeling.py",
    "self.gradient_checkpointing and self.training and index % self.checkpoint_every == 0",
    "self.gradient_checkpointing and self.training",
    "every layer is checkpointed whatever was asked for",
)
LOST_IN_RECORDS = Mutation(
    "modeling.py",
    "record = block(x, rows, replace_tensors(carried, state), *switches)",
    "record = block(x, rows, carried, *switches)",
    "reentrant checkpointing passes no gradient to the carried state",
)
COUNTED_FROM_ONE = Mutation(
    "modeling.py",
    "index % self.checkpoint_every == 0",
    "(index + 1) % self.checkpoint_every == 0",
    "other layers are checkpointed than transformers says",
)


def trained(model: SheafStateForCausalLM, reading: Reading) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Loss and gradients of chunks through which the state carries gradients."""
    total, state = torch.zeros((), dtype=torch.float64), None
    for begin, end in reading.chunks():
        output = model(**reading.arguments(begin, end), labels=reading.ids[:, begin:end], cache=state, use_cache=True)
        total, state = total + output.loss + output.aux_loss + output.logits.square().mean(), output.cache
    total.backward()
    return total.detach(), [p.grad for p in model.parameters()]


@contract(16, breaks=(EVERY_LAYER, LOST_IN_RECORDS, COUNTED_FROM_ONE))
@pytest.mark.parametrize("case", CASES)
@per_case(2)
@given(
    reading=readings(st.integers(1, 24), rows=2),
    reentrant=st.sampled_from([True, None, False]),
    every=st.sampled_from([2, 1, 3, 4]),
)
def test_checkpointing_changes_neither_loss_nor_gradients(
    case: str, reading: Reading, reentrant: bool | None, every: int
) -> None:
    """Padded and packed rows in chunks; only the layers that were asked for run twice."""
    name, _, mode = case.partition("+")
    results = []
    for asked in (False, True):
        model = make_model(name, quantization=mode or "none", num_layers=LAYERS).train()
        calls = [0] * LAYERS
        if asked:
            how = None if reentrant is None else {"use_reentrant": reentrant}
            model.activation_checkpointing_enable(how, every_n_layers=every)
            blocks = [module for module in model.modules() if isinstance(module, Block)]
            for index, block in enumerate(blocks):
                block.register_forward_pre_hook(lambda *_, i=index, calls=calls: calls.__setitem__(i, calls[i] + 1))
        results.append(trained(model, reading))
        chunks = len(reading.cuts)
        if asked:
            assert calls == [chunks * (2 if index % every == 0 else 1) for index in range(LAYERS)]
    (loss, gradients), (again, recomputed) = results
    assert torch.equal(loss, again)
    for a, b in zip(gradients, recomputed, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a, rtol=1e-12, atol=1e-12)


@contract(16)
def test_checkpointing_can_be_switched_off_and_is_refused_where_it_means_nothing() -> None:
    model = make_model("mixture").train()
    with pytest.raises(InputError, match="every_n_layers must be at least 1, not 0"):
        model.activation_checkpointing_enable(every_n_layers=0)
    model.activation_checkpointing_enable(every_n_layers=2)
    model.activation_checkpointing_disable()
    calls: list[int] = []
    model.model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    model(torch.zeros(1, 5, dtype=torch.long)).logits.sum().backward()
    assert calls == [1]
