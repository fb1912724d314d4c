"""PEFT adapts the linear maps of a layer and its stacked experts as it adapts a Llama's."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM

from sheafstate import SheafStateForCausalLM
from tests.variants import VARIANTS, examples, make_model, tokens

from .promises import Mutation, contract

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning:transformers")

TARGETS = {
    "linear": {"target_modules": ["in_proj", "out_proj", "shared_up", "shared_down"]},
    "all-linear": {"target_modules": "all-linear"},
    "experts": {"target_modules": [], "target_parameters": ["experts.up", "experts.down"]},
    "both": {"target_modules": ["in_proj"], "target_parameters": ["experts.up", "experts.down"]},
}

FROZEN_EXPERTS = Mutation(
    "nn/experts.py",
    "mode=self.quantization) for weight in getattr(self, name)]",
    "mode=self.quantization) for weight in getattr(self, name).detach()]",
    "the maps of the experts do not learn",
)
BYPASSED = Mutation(
    "nn/gluing.py",
    "return self.out_proj(glued), Glued(",
    "return functional.linear(glued, self.out_proj.weight), Glued(",
    "a layer reads the weight of a linear map instead of calling it",
)
NOT_LINEAR = Mutation(
    "nn/quant_linear.py", "class QuantLinear(nn.Linear):", "class QuantLinear(nn.Bilinear):", "our linear maps are none"
)
CUT = Mutation(
    "modeling.py",
    "self._gradient_checkpointing_func(run, x, *tensors_of(carried))",
    "self._gradient_checkpointing_func(run, x.detach(), *tensors_of(carried))",
    "recomputing a layer cuts the gradient to those below it",
)


def adapt(model: SheafStateForCausalLM, target: str, rank: int = 2) -> PeftModel:
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=4, **TARGETS[target]))


def stir(model: PeftModel, seed: int = 3) -> PeftModel:
    """Adapters that were trained: at first they change nothing."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@torch.no_grad()
def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model.eval()(input_ids=ids, use_cache=False).logits


cases = pytest.mark.parametrize(
    ("name", "target"),
    [(name, "linear") for name in VARIANTS] + [("mixture", target) for target in TARGETS if target != "linear"],
)


@contract(23, breaks=(FROZEN_EXPERTS, BYPASSED))
@cases
def test_only_adapters_learn_and_all_of_them(name, target) -> None:
    model = stir(adapt(make_model(name), target)).train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    trainable = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable
    assert all("lora_" in key for key in trainable)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    ids = tokens(3, 40)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == trainable


@contract(23, breaks=BYPASSED)
@cases
@examples(3)
@given(length=st.integers(1, 40), rank=st.integers(1, 4), seed=st.integers(0, 99))
def test_merged_equals_unmerged_and_disabled_equals_the_base(name, target, length, rank, seed) -> None:
    base, ids = make_model(name), tokens(2, length, seed)
    expected = logits(base, ids)
    model = stir(adapt(base, target, rank), seed)
    adapted = logits(model, ids)
    assert not torch.allclose(adapted, expected)
    with model.disable_adapter():
        assert torch.equal(logits(model, ids), expected)
    model.merge_adapter()
    torch.testing.assert_close(logits(model, ids), adapted, rtol=0, atol=1e-8)
    model.unmerge_adapter()
    torch.testing.assert_close(logits(model, ids), adapted, rtol=0, atol=1e-8)
    torch.testing.assert_close(logits(model.merge_and_unload(), ids), adapted, rtol=0, atol=1e-8)


@contract(23, breaks=NOT_LINEAR)
@pytest.mark.parametrize("target", TARGETS)
def test_an_adapter_is_saved_loaded_and_merged_into_a_checkpoint(target, tmp_path: Path) -> None:
    ids, kind = tokens(2, 30), torch.float32
    model = stir(adapt(make_model("mixture", kind), target))
    adapted = logits(model, ids)
    model.save_pretrained(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(make_model("mixture", kind), tmp_path / "adapter")
    assert torch.equal(logits(loaded, ids), adapted)
    merged = loaded.merge_and_unload()
    assert type(merged) is SheafStateForCausalLM
    whole = logits(merged, ids)
    merged.save_pretrained(tmp_path / "merged")
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"), ids), whole)


@contract(23, breaks=BYPASSED)
@cases
def test_an_adapted_model_writes_the_same_with_and_without_a_state(name, target) -> None:
    model, ids = stir(adapt(make_model(name), target)).eval(), tokens(2, 9)
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    cached = model.generate(input_ids=ids, **options)
    assert torch.equal(cached, model.generate(input_ids=ids, use_cache=False, **options))
    merged = model.merge_and_unload()
    assert torch.equal(cached, merged.generate(input_ids=ids, **options))


def prepared(model: SheafStateForCausalLM) -> PeftModel:
    return adapt(prepare_model_for_kbit_training(model), "linear")


def by_hand(model: SheafStateForCausalLM) -> PeftModel:
    model.activation_checkpointing_enable()
    adapted = adapt(model, "linear")
    adapted.enable_input_require_grads()
    return adapted


@contract(16, 23, breaks=CUT)
@pytest.mark.parametrize("route", [prepared, by_hand])
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_checkpointing_leaves_the_gradients_of_adapters(route: Callable[..., PeftModel]) -> None:
    ids, found = tokens(2, 30), []
    for wrap in (route, lambda model: adapt(model, "linear")):
        model = stir(wrap(make_model("mixture", torch.float32))).train()
        model(input_ids=ids, labels=ids).loss.backward()
        found.append({key: p.grad for key, p in model.named_parameters() if p.requires_grad})
        assert model.get_input_embeddings() is model.base_model.model.model.embed_tokens
    assert found[0].keys() == found[1].keys()
    for key, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][key], rtol=1e-4, atol=1e-5, msg=key)


def test_new_tokens_learn_beside_adapters_and_stay_tied(tmp_path: Path) -> None:
    model = make_model("mixture", torch.float32)
    model.resize_token_embeddings(26, mean_resizing=False)
    config = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["in_proj"], trainable_token_indices=[23, 24, 25])
    adapted = get_peft_model(model, config).train()
    ids = tokens(2, 20) + 3
    adapted(input_ids=ids, labels=ids).loss.backward()
    rows = [p for key, p in adapted.named_parameters() if "trainable_tokens_delta" in key]
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in rows)
    whole = adapted.merge_and_unload()
    assert whole.lm_head.weight is whole.get_input_embeddings().weight
