"""Configurations are checked and presets filled in; the body loads alone, logits are wide."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from sheafstate import SheafStateConfig, SheafStateModel
from tests.variants import make_model, tokens


def test_the_body_alone_loads_from_the_whole(tmp_path: Path) -> None:
    model, ids = make_model("mixture", torch.float32), tokens(1, 12)
    model.save_pretrained(tmp_path)
    body = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(body, SheafStateModel)
    with torch.no_grad():
        assert torch.equal(body(ids).last_hidden_state, model.model(ids).last_hidden_state)


def test_logits_are_wide_after_resizing_and_under_autocast() -> None:
    model, ids = make_model("local", torch.bfloat16, tie_word_embeddings=False), tokens(1, 5)
    model.resize_token_embeddings(30, mean_resizing=False)
    assert model(ids).logits.dtype == torch.float32
    single = make_model("local", torch.float32)
    hidden = torch.randn(1, 2, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = single.lm_head(hidden)
    assert torch.equal(logits, torch.nn.functional.linear(hidden, single.lm_head.weight))


def test_trainer_knows_that_labels_are_shifted() -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    assert MODEL_FOR_CAUSAL_LM_MAPPING_NAMES["sheafstate"] == "SheafStateForCausalLM"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("heads", {"output": 1}, "output"),
        ("heads", {"local": 0}, "at least one head"),
        ("heads", {"local": -1}, "heads.local"),
        ("heads", [1, 2], "heads"),
        ("d_head", 5, "even"),
        ("num_addresses", 7, "even"),
        ("window", 0, "window"),
        ("site", "dense", "complete"),
        ("gluing", "glue", "plain"),
        ("quantization", "int3", "ternary"),
        ("vocab_size", 0, "vocab_size"),
        ("num_layers", 2.5, "num_layers"),
        ("norm_eps", -1.0, "norm_eps"),
        ("norm_eps", float("nan"), "norm_eps"),
        ("output_gate", "yes", "output_gate"),
        ("pad_token_id", 256, "pad_token_id"),
        ("pad_token_id", -1, "pad_token_id"),
        ("eos_token_id", [1, "x"], "eos_token_id"),
        ("bos_token_id", 3.5, "bos_token_id"),
        ("router_aux_loss_coef", True, "router_aux_loss_coef"),
        ("d_modle", 3, "d_model"),
        ("d_state", 10**14, "d_state"),
        ("heads", {"local": 10**9}, "heads.local"),
    ],
)
def test_an_impossible_configuration_is_told_in_one_sentence(field, value, words) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        SheafStateConfig(**{field: value})
    assert "\n" not in str(caught.value)


def test_presets_take_any_field_and_refuse_unknown_ones() -> None:
    config = SheafStateConfig.from_preset("tiny", vocab_size=99, heads={"local": 1, "memory": 2})
    assert config.covers == {"local": 1, "memory": 2}
    assert config.vocab_size == 99
    with pytest.raises(ValueError, match="did you mean 'window'"):
        SheafStateConfig.from_preset("tiny", windw=3)
    with pytest.raises(ValueError, match="tiny, small, base"):
        SheafStateConfig.from_preset("huge")
    assert json.loads(config.to_json_string())["heads"] == {"local": 1, "memory": 2}
