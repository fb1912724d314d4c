"""The peers are what they say: their sizes, what they carry, and a Mamba-2 by our scan that computes the same."""

from dataclasses import replace

import pytest
import torch
from transformers import DynamicCache, Mamba2ForCausalLM

from sheafstate.benchmarks.peers import PEERS, Shape, make_peer, mamba2_config, scan_with_ours, state_elements
from sheafstate.errors import InputError
from sheafstate.training.trainer import decaying_parameters

SHAPE = Shape(vocab_size=64, width=64, layers=2, d_head=16, parameters=150_000)


def non_embedding(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("wanted", [1_200_000, 4_000_000])
def test_a_peer_has_the_parameters_that_are_wanted(name: str, wanted: int) -> None:
    width = 128 if wanted < 2e6 else 192
    with torch.device("meta"):
        model = make_peer(name, Shape(4096, width, 6, 32, wanted))
    assert abs(non_embedding(model) / wanted - 1) < 0.02
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_may_start_as_our_model_does(name: str) -> None:
    peer = make_peer(name, replace(SHAPE, fan_in=True))
    maps = {path: m for path, m in peer.named_modules() if isinstance(m, torch.nn.Linear) and path != "lm_head"}
    spread = {path: float(m.weight.detach().std()) * m.in_features**0.5 for path, m in maps.items()}
    small = {path: s for path, s in spread.items() if path.endswith(("o_proj", "out_proj", "down_proj"))}
    assert len(small) >= peer.config.num_hidden_layers
    assert all(s == pytest.approx(0.02, rel=0.1) for s in small.values())
    assert all(s == pytest.approx(1, rel=0.1) for path, s in spread.items() if path not in small)
    assert float(peer.get_input_embeddings().weight.detach().std()) == pytest.approx(
        float(make_peer(name, SHAPE).get_input_embeddings().weight.detach().std()), rel=0.1
    )


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_carries_as_many_numbers_as_is_said(name: str) -> None:
    model = make_peer(name, SHAPE).eval()
    with torch.no_grad():
        if name == "gated-delta-net":  # a model without any attention cannot say how long its cache is
            cache = DynamicCache(config=model.config)
            for layer in model.model.layers:
                layer.linear_attn(torch.ones(1, 9, 64), cache=cache)
        else:
            cache = model(torch.ones(1, 9, dtype=torch.long), use_cache=True).cache
    assert sum(tensor.numel() for tensor in tensors_in(cache)) == state_elements(model, 9)


def tensors_in(cache: DynamicCache) -> list[torch.Tensor]:
    found = []
    for layer in cache.layers:
        for value in vars(layer).values():
            parts = (
                value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, dict) else [value]
            )
            found += [part for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()]
    return found


@pytest.mark.parametrize("name", PEERS)
def test_no_peer_sees_what_is_to_come(name: str) -> None:
    torch.manual_seed(0)
    model, ids = make_peer(name, SHAPE).eval(), torch.randint(64, (2, 40))
    changed = ids.clone()
    changed[:, 25:] = (changed[:, 25:] + 1) % 64
    with torch.no_grad():
        a, b = (model(given, use_cache=False).logits for given in (ids, changed))
    torch.testing.assert_close(a[:, :25], b[:, :25], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(a[:, 25:], b[:, 25:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 70])
@pytest.mark.parametrize("training", [True, False])
def test_a_mamba_2_by_our_scan_computes_what_it_did(length: int, training: bool) -> None:
    torch.manual_seed(length)
    theirs = Mamba2ForCausalLM(mamba2_config(SHAPE)).train(training)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    ours = scan_with_ours(Mamba2ForCausalLM(theirs.config)).train(training)
    ours.load_state_dict(theirs.state_dict())
    ids, mask = torch.randint(64, (2, length)), torch.ones(2, length, dtype=torch.long)
    mask[0, length // 2 + 1 :] = 0
    for given in ({}, {"attention_mask": mask}):
        losses = [m(ids, labels=ids, use_cache=False, **given).loss if length > 1 else None for m in (ours, theirs)]
        logits = [m(ids, use_cache=False, **given).logits for m in (ours, theirs)]
        torch.testing.assert_close(*logits, rtol=1e-4, atol=1e-5)
        if length > 1:
            found = [
                torch.autograd.grad(loss, list(m.parameters())) for loss, m in zip(losses, (ours, theirs), strict=True)
            ]
            for a, b in zip(*found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6 + 1e-4 * float(b.abs().max()))


def test_a_mamba_2_by_our_scan_still_decodes() -> None:
    torch.manual_seed(0)
    model, ids = make_peer("mamba2", SHAPE).eval(), torch.randint(64, (1, 12))
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits
        cache = model(ids[:, :7], use_cache=True).cache
        last = [model(ids[:, at : at + 1], cache=cache, use_cache=True).logits for at in range(7, 12)]
    torch.testing.assert_close(torch.cat(last, 1), whole[:, 7:], rtol=1e-3, atol=1e-4)


def test_heads_of_a_gated_delta_net_remember_at_first() -> None:
    """A step's decay is exp(-A softplus(dt)); transformers begins dt at 1, and nothing would outlive a token."""
    torch.manual_seed(0)
    model = make_peer("gated-delta-net", Shape(64, 128, 8, 16, 1_500_000))
    mixers = [layer.linear_attn for layer in model.model.layers]
    decay = torch.cat([(-m.A_log.exp() * torch.nn.functional.softplus(m.dt_bias)).exp() for m in mixers])
    assert decay.median() > 0.7
    steps = torch.cat([torch.nn.functional.softplus(m.dt_bias) for m in mixers])
    assert 0.999e-3 < steps.min() < steps.max() < 0.1001


@pytest.mark.parametrize("name", PEERS)
def test_weight_decay_shrinks_matrices_alone(name: str) -> None:
    model = make_peer(name, SHAPE)
    shrunk = decaying_parameters(model)
    assert all(dict(model.named_parameters())[parameter].ndim == 2 for parameter in shrunk)
    assert sum(parameter.endswith("proj.weight") for parameter in shrunk) > 1


def test_what_is_no_peer_or_has_no_room_is_refused() -> None:
    with pytest.raises(InputError, match="must be one of llama, mamba2, gated-delta-net"):
        make_peer("gpt", SHAPE)
    for name in ("llama", "gated-delta-net"):
        with pytest.raises(InputError, match=r"has .* parameters, over 1,000"):
            make_peer(name, Shape(64, 64, 2, 16, 1000))
        with pytest.raises(InputError, match="number of layers"):
            make_peer(name, Shape(64, 64, 0, 16, 100_000))
    for wrong in ((64, 0, 2, 16, 9), (64, 16, 2, 32, 9), (64, 16, 2, 8, "9"), (64, 16, -1, 8, 9)):
        with pytest.raises(InputError, match="peer"):
            Shape(*wrong)
    with pytest.raises(InputError, match="multiple of 32"):
        make_peer("mamba2", Shape(64, 48, 0, 16, 100_000))
