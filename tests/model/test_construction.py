"""Every way to a model gives the same right initial values; saving and loading change nothing."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from sheafstate import SheafStateConfig, SheafStateForCausalLM, SheafStateModel
from sheafstate.patches import PATCHES
from tests.variants import VARIANTS, make_config, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)


def assert_right_initial_values(model: SheafStateForCausalLM) -> None:
    config = model.config
    for block in model.model.layers:
        dynamics, site = block.dynamics, block.site
        kinds = [kind for kind, n in dynamics.natural.items() for _ in range(n)] + ["memory"] * dynamics.memories
        dt = torch.nn.functional.softplus(dynamics.dt_bias)
        torch.testing.assert_close(dt, torch.tensor([PATCHES[kind].dt for kind in kinds]), rtol=1e-4, atol=0)
        assert dynamics.A_log.abs().max() == 0
        assert (dynamics.D == 1).all()
        assert (site.boundary_bias == -4).all()
        assert (site.write_bias == 2).all()
        assert site.directions.std().item() == pytest.approx(1, abs=0.3)
        assert (block.gluing.licence_bias == 2).all()
        assert (block.gluing.gamma == 1).all()
        retrieval = block.transport.readers["retrieval"]
        torch.testing.assert_close(retrieval.log_scale.exp(), torch.full_like(retrieval.log_scale, 8.0))
        assert (retrieval.shift == 1).all()
        assert retrieval.null.abs().max() == 0
        assert block.in_proj.weight.std().item() == pytest.approx(config.d_model**-0.5, rel=0.2)
        assert (block.norm.weight == 1).all()
        assert block.experts.site_router.sum(1).tolist() == [1] * config.num_experts
    embedding = model.get_input_embeddings().weight
    assert embedding.std().item() == pytest.approx(config.initializer_range, rel=0.3)


def from_meta(config: SheafStateConfig) -> SheafStateForCausalLM:
    with torch.device("meta"):
        model = SheafStateForCausalLM(config)
    model.to_empty(device="cpu")
    for module in model.modules():
        module._is_hf_initialized = False
    model.init_weights()
    return model


ROUTES = {
    "constructor": SheafStateForCausalLM,
    "from_config": AutoModelForCausalLM.from_config,
    "meta": from_meta,
    "deepcopy": lambda config: copy.deepcopy(SheafStateForCausalLM(config)),
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_gives_the_right_initial_values(route) -> None:
    torch.manual_seed(0)
    model = ROUTES[route](make_config("mixture", d_model=64))
    assert_right_initial_values(model)
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_loading_keeps_what_was_saved_and_initialises_what_was_not(tmp_path: Path) -> None:
    model = make_model("mixture", torch.float32)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    for (name, a), (_, b) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    fewer = SheafStateForCausalLM.from_pretrained(tmp_path, num_layers=1)
    assert torch.equal(fewer.model.layers[0].dynamics.dt_bias, model.model.layers[0].dynamics.dt_bias)
    torch.manual_seed(1)
    more = SheafStateForCausalLM.from_pretrained(tmp_path, num_layers=3)
    fresh, block = SheafStateForCausalLM(model.config).model.layers[0], more.model.layers[2]
    torch.testing.assert_close(block.dynamics.dt_bias, fresh.dynamics.dt_bias)
    assert (block.site.boundary_bias == -4).all()
    assert block.site.directions.std() > 0.3


@names
def test_saved_and_loaded_models_agree_to_the_bit(name, tmp_path: Path) -> None:
    model, ids = make_model(name, torch.float32), tokens(2, 30)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert isinstance(loaded, SheafStateForCausalLM)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    with safe_open(tmp_path / "model.safetensors", "pt") as saved:
        assert sum("lm_head" in key or "embed_tokens" in key for key in saved.keys()) == 1  # noqa: SIM118
    assert AutoConfig.from_pretrained(tmp_path).to_dict() == loaded.config.to_dict()


def test_the_body_alone_loads_from_the_whole(tmp_path: Path) -> None:
    model, ids = make_model("mixture", torch.float32), tokens(1, 12)
    model.save_pretrained(tmp_path)
    body = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(body, SheafStateModel)
    with torch.no_grad():
        assert torch.equal(body(ids).last_hidden_state, model.model(ids).last_hidden_state)


def test_resized_embeddings_stay_tied_and_keep_the_rest() -> None:
    model, ids = make_model("mixture", torch.float32), tokens(1, 12)
    with torch.no_grad():
        before = model(ids).logits
        model.resize_token_embeddings(40, mean_resizing=False)
        after = model(ids).logits
    assert after.shape[-1] == model.config.vocab_size == 40
    assert model.lm_head.weight is model.get_input_embeddings().weight
    torch.testing.assert_close(after[..., :23], before)


def test_untied_embeddings_are_two(tmp_path: Path) -> None:
    model = make_model("local", torch.float32, tie_word_embeddings=False)
    assert model.lm_head.weight is not model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.lm_head.weight, model.lm_head.weight)
    assert not torch.equal(loaded.lm_head.weight, loaded.get_input_embeddings().weight)


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
        ("boundaries", "yes", "boundaries"),
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
