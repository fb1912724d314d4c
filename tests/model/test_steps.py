"""Steps of decoding write into the state that they were given: only where it is theirs alone, and all or nothing."""

import pytest
import torch

from sheafstate import SheafStateForCausalLM
from sheafstate.errors import InputError
from sheafstate.state import SheafStateCache
from tests.variants import VARIANTS, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)
EXACT = 1e-9


def read(model: SheafStateForCausalLM, ids: torch.Tensor, cache: SheafStateCache, stops: range) -> torch.Tensor:
    """Logits of single steps."""
    return torch.cat([model(ids[:, t : t + 1], cache=cache).logits for t in stops], 1)


@names
@torch.no_grad()
def test_steps_leave_a_snapshot_and_a_copy_that_shares_its_tensors_alone(name: str) -> None:
    model, ids = make_model(name), tokens(2, 24)
    whole = model(ids, use_cache=False).logits
    cache = model(ids[:, :10]).cache
    read(model, ids, cache, range(10, 15))
    copies = [cache.snapshot(), cache.detach()]
    before = [[t.clone() for t in copy.tensors()] for copy in copies]
    assert (read(model, ids, cache, range(15, 24)) - whole[:, 15:]).abs().max() <= EXACT
    for copy, tensors in zip(copies, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(copy.tensors(), tensors, strict=True))
        assert (read(model, ids, copy, range(15, 24)) - whole[:, 15:]).abs().max() <= EXACT


@names
def test_steps_change_between_modes_of_autograd(name: str) -> None:
    model, ids = make_model(name), tokens(1, 24)
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
    with torch.inference_mode():
        cache = model(ids[:, :8]).cache
        parts = [read(model, ids, cache, range(8, 11))]
    with torch.no_grad():
        parts.append(read(model, ids, cache, range(11, 14)))
    with torch.inference_mode():
        parts.append(read(model, ids, cache, range(14, 17)))
    with torch.no_grad():
        parts.append(read(model, ids, cache, range(17, 20)))
    with torch.enable_grad():
        parts.append(read(model, ids, cache, range(20, 24)).detach())
    assert (torch.cat([part.clone() for part in parts], 1) - whole[:, 8:]).abs().max() <= EXACT


@names
def test_a_step_with_gradients_writes_into_nothing(name: str) -> None:
    model, ids = make_model(name), tokens(2, 12)
    with torch.no_grad():
        cache = model(ids[:, :8]).cache
        read(model, ids, cache, range(8, 10))
    held = list(cache.tensors())
    before = [t.clone() for t in held]
    model(ids[:, 10:11], cache=cache).logits.sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))


@names
@torch.no_grad()
def test_a_step_that_fails_half_way_leaves_no_cache_that_looks_whole(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = make_model(name), tokens(1, 12)
    cache = model(ids[:, :8]).cache
    last = model.model.layers[-1]

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr(last, "forward", fail)
        with pytest.raises(RuntimeError, match="memory"):
            model(ids[:, 8:9], cache=cache)
    with pytest.raises(InputError, match="half-way"):
        model(ids[:, 8:9], cache=cache)
    cache.reset()
    assert model(ids[:, :8], cache=cache).logits.isfinite().all()


@torch.no_grad()
def test_generation_decodes_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make_model("mixture"), tokens(2, 10)
    seen = []
    begin = SheafStateCache.begin_step
    monkeypatch.setattr(SheafStateCache, "begin_step", lambda self: (seen.append(1), begin(self))[1])
    model.generate(ids, max_new_tokens=6, do_sample=False, attention_mask=torch.ones_like(ids))
    assert len(seen) == 5
