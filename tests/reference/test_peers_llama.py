"""A Llama of transformers, and the same weights in our model: logits, gradients and generated tokens agree."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from sheafstate import SheafStateForCausalLM
from sheafstate.llama import from_llama
from tests.variants import VOCABULARY, examples, tokens

SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "eos_token_id": None,
    "bos_token_id": None,
}
LIMITS = {torch.float64: 1e-9, torch.float32: 1e-4}


class ExactRotary(torch.nn.Module):
    """A Llama's rotary embedding in float64; its own is computed in float32 whatever the model's dtype."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        width = config.head_dim
        exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
        self.frequencies = config.rope_parameters["rope_theta"] ** -exponents

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = (position_ids[..., None] * self.frequencies).repeat(1, 1, 2)
        return angles.cos(), angles.sin()


def make_exact(llama: LlamaForCausalLM) -> None:
    """Give a float64 Llama angles and norms in float64."""
    llama.model.rotary_emb = ExactRotary(llama.config)
    for module in list(llama.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == "LlamaRMSNorm":
                exact = torch.nn.RMSNorm(child.weight.shape[0], child.variance_epsilon).double()
                exact.load_state_dict(child.state_dict())
                setattr(module, name, exact)


def make_llama(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """A Llama far from its initial values."""
    torch.manual_seed(seed)
    llama = LlamaForCausalLM(LlamaConfig(**(SMALL | changes), attn_implementation="sdpa")).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in llama.named_parameters():
            if "embed_tokens" in name:
                parameter.normal_()
            elif "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.normal_(0.0, 1.5 / math.sqrt(parameter.shape[-1]))
    if dtype is torch.float64:
        make_exact(llama)
    return llama


@st.composite
def llamas(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes of a Llama: heads that share keys, odd widths of the whole, any rotary base."""
    shared, group, width = draw(st.integers(1, 3)), draw(st.integers(1, 3)), 2 * draw(st.integers(1, 5))
    heads = shared * group
    # transformers wants heads that divide the width; the heads together may be wider or narrower than it
    return {
        "num_attention_heads": heads,
        "num_key_value_heads": shared,
        "head_dim": width,
        "hidden_size": heads * draw(st.integers(1, 5)),
        "intermediate_size": draw(st.integers(1, 20)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "rope_parameters": {"rope_type": "default", "rope_theta": draw(st.sampled_from([100.0, 10000.0, 500000.0]))},
        "rms_norm_eps": draw(st.sampled_from([1e-6, 1e-5])),
        "tie_word_embeddings": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
    }


@examples(25)
@given(
    shape=llamas(),
    dtype=st.sampled_from(list(LIMITS)),
    length=st.integers(1, 90),
    padding=st.integers(0, 20),
    left=st.booleans(),
)
def test_any_llama_keeps_its_logits(shape, dtype, length, padding, left) -> None:
    llama = make_llama(dtype, **shape)
    ours, ids = from_llama(llama), tokens(2, length + padding)
    kept = slice(padding, None) if left else slice(0, length)
    mask = torch.ones_like(ids)
    mask[1] = 0
    mask[1, kept] = 1
    with torch.no_grad():
        a = ours(ids, attention_mask=mask).logits
        whole, part = llama(ids[:1]).logits[0], llama(ids[1:, kept]).logits[0]
    assert (a[0] - whole).abs().max() <= LIMITS[dtype]
    assert (a[1, kept] - part).abs().max() <= LIMITS[dtype]


@examples(15)
@given(shape=llamas(), lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_packed_documents_are_a_llamas_own(shape, lengths) -> None:
    """As a flattening collator packs them for either: ``position_ids`` that restart."""
    llama = make_llama(**shape)
    ours, ids = from_llama(llama), tokens(1, sum(lengths))
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    with torch.no_grad():
        a = ours(ids, position_ids=positions).logits
        packed = llama(ids, position_ids=positions, use_cache=False).logits
        solo = torch.cat([llama(part).logits for part in ids.split(lengths, 1)], 1)
    assert (packed - solo).abs().max() <= 1e-9
    assert (a - solo).abs().max() <= 1e-9


@examples(10)
@given(shape=llamas(), length=st.integers(1, 40), window=st.integers(1, 50))
def test_with_a_window_it_is_a_llama_with_a_band_mask(shape, length, window) -> None:
    llama, ids = make_llama(**shape), tokens(2, length)
    position = torch.arange(length)
    band = (position[:, None] >= position) & (position[:, None] < position + window)
    mask = torch.zeros(2, 1, length, length, dtype=torch.float64).masked_fill(~band, -math.inf)
    with torch.no_grad():
        difference = from_llama(llama, window)(ids).logits - llama(ids, attention_mask=mask).logits
    assert difference.abs().max() <= 1e-9


@examples(8)
@given(shape=llamas(), left=st.integers(0, 9), beams=st.sampled_from([1, 3]))
def test_it_writes_what_the_llama_writes(shape, left, beams) -> None:
    """A short and a long prompt in one batch, cached on both sides, greedy and with beams."""
    llama = make_llama(**shape)
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, :left] = 0
    options = {"attention_mask": mask, "max_new_tokens": 9, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
    assert from_llama(llama).generate(ids, **options).tolist() == llama.generate(ids, **options).tolist()


def test_gradients_are_the_llamas() -> None:
    llama = make_llama(num_key_value_heads=2, tie_word_embeddings=True)
    ours, ids = from_llama(llama), tokens(2, 40)
    for model in (ours, llama):
        model(ids).logits.square().mean().backward()  # the Llama's loss is taken in float32
    torch.testing.assert_close(ours.lm_head.weight.grad, llama.lm_head.weight.grad, rtol=1e-8, atol=1e-11)
    for mine, layer in zip(ours.model.layers, llama.model.layers, strict=True):
        q, k, v = mine.in_proj.weight.grad.chunk(3)
        torch.testing.assert_close(q, layer.self_attn.q_proj.weight.grad, rtol=1e-8, atol=1e-11)
        for repeated, shared in ((k, layer.self_attn.k_proj), (v, layer.self_attn.v_proj)):
            # a shared head learns from all that read it
            summed = repeated.unflatten(0, (2, 2, 8)).sum(1).flatten(0, 1)
            torch.testing.assert_close(summed, shared.weight.grad, rtol=1e-8, atol=1e-11)
        torch.testing.assert_close(
            mine.experts.shared_down.weight.grad, layer.mlp.down_proj.weight.grad, rtol=1e-8, atol=1e-11
        )


@pytest.mark.parametrize("tied", [True, False])
def test_the_copy_shares_nothing_and_is_whole(tied) -> None:
    llama = make_llama(torch.bfloat16, tie_word_embeddings=tied)
    llama.generation_config.temperature = 0.25
    ours, ids = from_llama(llama), tokens(1, 9)
    assert isinstance(ours, SheafStateForCausalLM)
    assert not ours.training
    assert {p.dtype for p in ours.parameters()} == {torch.bfloat16}
    assert (ours.lm_head.weight is ours.get_input_embeddings().weight) is tied
    assert ours.generation_config.temperature == 0.25
    with torch.no_grad():
        before = ours(ids).logits
        for parameter in llama.parameters():
            parameter.zero_()
        assert torch.equal(ours(ids).logits, before)


REFUSED = {
    "scaled": ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "'linear'"),
    "attention bias": ({"attention_bias": True}, "attention_bias"),
    "mlp bias": ({"mlp_bias": True}, "mlp_bias"),
    "activation": ({"hidden_act": "gelu"}, "'gelu'"),
}


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_expressed_is_refused(changes, words) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        from_llama(LlamaForCausalLM(LlamaConfig(**(SMALL | changes))))
    assert "\n" not in str(caught.value)


def test_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="not a SheafStateForCausalLM"):
        from_llama(from_llama(make_llama()))


def test_old_configurations_say_minus_one_for_no_token() -> None:
    assert from_llama(make_llama(pad_token_id=-1)).config.pad_token_id is None
