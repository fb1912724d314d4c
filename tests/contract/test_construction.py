"""Promise 17: however a model is built, its decays, step sizes, biases and fixed directions are what they must be."""

import copy
import io
import math
import tempfile
from collections.abc import Callable

import accelerate
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.patches import PATCHES
from tests.variants import VARIANTS, VOCABULARY, disturb, examples, make_config, make_model, tokens

from .promises import Mutation, contract

FORGOTTEN = Mutation(
    "nn/site.py",
    'self.register_buffer("directions", torch.empty(shape, dtype=wide))',
    'self.register_buffer("directions", torch.empty(shape, dtype=wide), persistent=False)',
    "the fixed directions are not saved",
)
OVERWRITTEN = Mutation(
    "modeling.py",
    "initialization.copy_(getattr(module, name), value)",
    "getattr(module, name).copy_(value)",
    "the initialisation hook overwrites what was loaded",
)
UNSET = Mutation(
    "nn/dynamics.py",
    '            "A_log": torch.zeros_like(dt),\n',
    "",
    "decay rates are left as whatever the memory held",
)
ROUNDED = Mutation(
    "nn/site.py",
    "if exact is not None and self.directions.dtype.itemsize < torch.float32.itemsize:",
    "if exact is not None and self.directions.dtype.is_complex:",
    "casting a model rounds its fixed directions",
)

variants = st.sampled_from(list(VARIANTS))


def expected_constants(model: SheafStateForCausalLM) -> dict[str, torch.Tensor | float]:
    """The initial values that are no random numbers, by the name's ending, of one layer."""
    block = model.model.layers[0]
    kinds = [kind for kind, n in block.dynamics.natural.items() for _ in range(n)]
    kinds += ["memory"] * block.dynamics.memories
    dt = torch.tensor([PATCHES[kind].dt for kind in kinds], dtype=torch.float64)
    return {
        "dynamics.dt_bias": dt.expm1().log().float(),
        "dynamics.A_log": 0.0,
        "dynamics.D": 1.0,
        "dynamics.conv_bias": 0.0,
        "site.boundary_bias": -4.0,
        "site.write_bias": 2.0,
        "site.anchor_bias": -1.53,
        "gluing.licence_bias": 2.0,
        "gluing.beta": 0.0,
        "retrieval.log_scale": math.log(8),
        "retrieval.null": 0.0,
        "retrieval.shift": 1.0,
        "retrieval.slope": 1.0,
        "instruction.null": 0.0,
        "norm.weight": 1.0,
    }


def expected_spreads(config: SheafStateConfig) -> dict[str, float]:
    """Standard deviations of the random initial values, by the name's ending."""
    down = config.initializer_range  # so that a branch is no larger than the embedding
    return {
        "embed_tokens.weight": config.initializer_range,
        "site.directions": 1.0,
        "site.projection": config.d_model**-0.5,
        "in_proj.weight": config.d_model**-0.5,
        "out_proj.weight": down * (config.num_heads * config.d_head) ** -0.5,
        "shared_up.weight": config.d_model**-0.5,
        "shared_down.weight": down * config.d_ff**-0.5,
        "experts.up": config.d_model**-0.5,
        "experts.down": down * config.d_expert**-0.5,
        "experts.router": 0.1 * config.d_model**-0.5,
        "dynamics.conv_weight": (3 * config.d_conv) ** -0.5,
    }


def assert_right_initial_values(model: SheafStateForCausalLM) -> None:
    constants, spreads = expected_constants(model), expected_spreads(model.config)
    for name, tensor in model.state_dict().items():
        constant = [value for ending, value in constants.items() if name.endswith(ending)]
        spread = [value for ending, value in spreads.items() if name.endswith(ending)]
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            assert model.lm_head.weight is model.get_input_embeddings().weight
        elif name == "lm_head.weight":
            assert 0 < tensor.std() < 1
        elif constant:
            expected = torch.as_tensor(constant[0], dtype=tensor.dtype).expand_as(tensor)
            torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=0, msg=name)
        else:
            assert len(spread) == 1, name
            # five standard errors, and no entry that a normal number never is
            assert tensor.std().item() == pytest.approx(spread[0], rel=5 / math.sqrt(2 * tensor.numel())), name
            assert tensor.abs().max() < 7 * spread[0], name


def on_meta(config: SheafStateConfig) -> SheafStateForCausalLM:
    """As libraries build a model that is larger than the memory: without storage, then with, then initialised."""
    with torch.device("meta"):
        model = SheafStateForCausalLM(config)
    model.to_empty(device="cpu")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data.fill_(math.nan)
    for module in model.modules():
        module._is_hf_initialized = False
    model.init_weights()
    model.tie_weights()
    return model


def with_other_layers(config: SheafStateConfig) -> SheafStateForCausalLM:
    """Loaded from a checkpoint that has no layer: all layers are new."""
    with tempfile.TemporaryDirectory() as folder:
        SheafStateForCausalLM(config).save_pretrained(folder)
        first = SheafStateForCausalLM.from_pretrained(folder, num_layers=1)
        first.save_pretrained(folder)
        return SheafStateForCausalLM.from_pretrained(folder, num_layers=config.num_layers)


def resized(config: SheafStateConfig) -> SheafStateForCausalLM:
    """Built for another vocabulary."""
    other = copy.deepcopy(config)
    other.vocab_size += 7
    model = SheafStateForCausalLM(other)
    model.resize_token_embeddings(config.vocab_size)
    return model


BUILDERS: dict[str, Callable[[SheafStateConfig], SheafStateForCausalLM]] = {
    "constructor": SheafStateForCausalLM,
    "from_config": AutoModelForCausalLM.from_config,
    "meta": on_meta,
    "other layers": with_other_layers,
    "resized": resized,
}


@contract(17, breaks=UNSET)
@examples(20)
@given(name=variants, route=st.sampled_from(list(BUILDERS)), tied=st.booleans(), seed=st.integers(0, 999))
def test_every_way_to_build_gives_the_right_initial_values(name, route, tied, seed) -> None:
    torch.manual_seed(seed)
    assert_right_initial_values(BUILDERS[route](make_config(name, d_model=32, d_head=8, tie_word_embeddings=tied)))


def saved(model: SheafStateForCausalLM, **options: object) -> SheafStateForCausalLM:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, **options)


def dispatched(model: SheafStateForCausalLM) -> SheafStateForCausalLM:
    """As accelerate loads what does not fit: an empty model, then the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with accelerate.init_empty_weights():
            empty = SheafStateForCausalLM(model.config)
        empty.tie_weights()  # accelerate asks for it, of a Llama too
        return accelerate.load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"})


def from_state_dict(model: SheafStateForCausalLM) -> SheafStateForCausalLM:
    other = SheafStateForCausalLM(model.config)
    other.load_state_dict(model.state_dict())
    return other


def from_bytes(model: SheafStateForCausalLM) -> SheafStateForCausalLM:
    """Through a file of tensors alone, put in their places without a copy."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    with torch.device("meta"):
        other = SheafStateForCausalLM(model.config)
    other.load_state_dict(torch.load(file, weights_only=True), assign=True)
    other.tie_weights()
    return other


def stretched(model: SheafStateForCausalLM) -> SheafStateForCausalLM:
    model.resize_token_embeddings(VOCABULARY + 9)
    model.resize_token_embeddings(VOCABULARY)
    return model


CARRIERS: dict[str, Callable[[SheafStateForCausalLM], SheafStateForCausalLM]] = {
    "deepcopy": copy.deepcopy,
    "saved": saved,
    "accelerate": dispatched,
    "state_dict": from_state_dict,
    "bytes": from_bytes,
    "resized": stretched,
    "post_init": lambda model: (loaded := saved(model)).post_init() or loaded,
    "float64": lambda model: model.double().float(),
}


@contract(17, breaks=FORGOTTEN)
@examples(12)
@given(
    name=variants,
    chain=st.lists(st.sampled_from(list(CARRIERS)), min_size=1, max_size=3),
    tied=st.booleans(),
    seed=st.integers(0, 99),
)
@example(name="mixture", chain=list(CARRIERS), tied=True, seed=0)
@torch.no_grad()
def test_no_way_to_pass_a_model_on_changes_a_number_of_it(name, chain, tied, seed) -> None:
    model = make_model(name, torch.float32, seed, tie_word_embeddings=tied)
    ids, before = tokens(2, 20), {key: tensor.clone() for key, tensor in model.state_dict().items()}
    logits = model(ids, use_cache=False).logits
    torch.manual_seed(seed + 1)
    for route in chain:
        model = CARRIERS[route](model)
    after = model.state_dict()
    assert after.keys() == before.keys()
    for key, tensor in before.items():
        assert torch.equal(after[key], tensor), key
    assert (model.lm_head.weight is model.get_input_embeddings().weight) is tied
    assert torch.equal(model.eval()(ids, use_cache=False).logits, logits)


@contract(17)
def test_layers_that_a_checkpoint_lacks_are_new_and_the_others_kept() -> None:
    model = make_model("mixture", torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        fewer = SheafStateForCausalLM.from_pretrained(folder, num_layers=1)
        more = SheafStateForCausalLM.from_pretrained(folder, num_layers=3)
    for key, tensor in model.model.layers[0].state_dict().items():
        assert torch.equal(fewer.model.layers[0].state_dict()[key], tensor), key
        assert torch.equal(more.model.layers[0].state_dict()[key], tensor), key
    constants = expected_constants(model)
    for key, tensor in more.model.layers[2].state_dict().items():
        for ending, value in constants.items():
            if key.endswith(ending):
                torch.testing.assert_close(tensor, torch.as_tensor(value).expand_as(tensor), msg=key)


@contract(17, breaks=OVERWRITTEN)
def test_single_tensors_that_a_checkpoint_lacks_are_new_and_the_rest_of_their_module_kept() -> None:
    model, constants = make_model("mixture", torch.float32), {"site.write_bias": 2.0, "dynamics.D": 1.0}
    kept = {key: tensor for key, tensor in model.state_dict().items() if not key.endswith(tuple(constants))}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=dict(kept))
        loaded = SheafStateForCausalLM.from_pretrained(folder).state_dict()
    for key, tensor in loaded.items():
        value = [constant for ending, constant in constants.items() if key.endswith(ending)]
        assert torch.equal(tensor, torch.full_like(tensor, value[0]) if value else kept[key]), key


CASTS = {torch.bfloat16: torch.nn.Module.bfloat16, torch.float16: torch.nn.Module.half}
HALVES = {
    "loaded": lambda model, dtype: saved(model, dtype=dtype),
    "cast": lambda model, dtype: copy.deepcopy(model).to(dtype),
    "cast, saved": lambda model, dtype: saved(copy.deepcopy(model).to(dtype)),
    "bfloat16() or half()": lambda model, dtype: CASTS[dtype](copy.deepcopy(model)),
}


@contract(17, breaks=ROUNDED)
@pytest.mark.parametrize("route", HALVES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["mixture", "retrieval", "memory"])
def test_in_half_precision_the_fixed_directions_stay_exact_and_the_rest_is_rounded_once(name, dtype, route) -> None:
    model = SheafStateForCausalLM(make_config(name))
    disturb(model)
    half = HALVES[route](model, dtype)
    for (key, tensor), (_, rounded) in zip(model.state_dict().items(), half.state_dict().items(), strict=True):
        exact = key.endswith("directions")
        assert rounded.dtype == (torch.float32 if exact else dtype), key
        assert torch.equal(rounded, tensor if exact else tensor.to(dtype)), key
    assert half(tokens(1, 9)).logits.isfinite().all()
