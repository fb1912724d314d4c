"""Promise 22: a packed model has the size that its bits say and the logits of its quantised self."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.accounting import checkpoint_bytes
from sheafstate.errors import InputError
from sheafstate.nn.quant_linear import PackedLinear
from tests.variants import VARIANTS, examples, make_model, tokens

from .promises import Mutation, contract

MODES = ("int8", "int4", "ternary")
names = pytest.mark.parametrize("name", VARIANTS)
modes = pytest.mark.parametrize("mode", MODES)
each_once = pytest.mark.parametrize(("name", "mode"), list(zip(VARIANTS, MODES * len(VARIANTS), strict=False)))

SHIFTED = Mutation(
    "ops/packed.py",
    "parts = [integer_product(planes[f], packed & masks[f]) >> (mode.bits * f) for f in range(fields)]",
    "parts = [integer_product(planes[f], packed & masks[f]) >> (mode.bits * (fields - 1)) for f in range(fields)]",
    "the fields of a byte are taken at the wrong place",
)
ROW_SCALE = Mutation(
    "nn/quant_linear.py",
    "    codes, scale = quantize_weight(weight, mode)\n",
    "    codes, scale = quantize_weight(weight.sort(-1).values, mode)\n",
    "other weights are packed than those of the model",
)
WIDE_CODES = Mutation(
    "ops/packed.py", "return packed.to(torch.int8)", "return packed", "packed codes are stored in two bytes"
)
DIRECTIONS = Mutation(
    "low_bit.py",
    "    packed.tie_weights()\n",
    "    packed.init_weights()\n",
    "a packed model begins anew instead of being tied",
)


@contract(22, breaks=(SHIFTED, ROW_SCALE, DIRECTIONS))
@names
@examples(4)
@given(mode=st.sampled_from(MODES), rows=st.integers(1, 3), length=st.integers(1, 40), seed=st.integers(0, 99))
def test_packed_logits_are_those_of_the_quantised_model(name, mode, rows, length, seed) -> None:
    """In float64, where the 8-bit rounding of activations meets no other rounding first."""
    full, quantised = make_model(name, seed=seed), make_model(name, seed=seed, quantization=mode)
    ids = tokens(rows, length, seed)
    with torch.no_grad():
        expected = quantised(ids).logits
        torch.testing.assert_close(full.pack(mode)(ids).logits, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(quantised.pack()(ids).logits, expected, rtol=0, atol=1e-9)


@contract(22, breaks=SHIFTED)
@modes
def test_in_float32_the_packed_model_differs_by_rounding(mode) -> None:
    """A sum that ends beside a half turns into another 8-bit code; the bound is on the mean and the best token."""
    torch.manual_seed(0)
    config = SheafStateConfig.from_preset("tiny")
    full = SheafStateForCausalLM(config).eval()
    quantised = SheafStateForCausalLM(SheafStateConfig.from_preset("tiny", quantization=mode)).eval()
    quantised.load_state_dict(full.state_dict())
    ids = torch.randint(config.vocab_size, (2, 200))
    with torch.no_grad():
        expected, seen = quantised(ids).logits, full.pack(mode)(ids).logits
    assert (expected - seen).abs().mean() <= 0.03 * expected.std()
    assert (expected.argmax(-1) == seen.argmax(-1)).float().mean() >= 0.93


@contract(22, breaks=WIDE_CODES)
@each_once
def test_the_file_has_the_size_of_the_formula(name, mode, tmp_path: Path) -> None:
    """Wide enough that the header of the file, about a hundred bytes a tensor, is small beside the tensors."""
    wide = {"d_model": 128, "d_head": 32, "d_ff": 192, "d_expert": 64, "d_address": 16, "vocab_size": 64}
    model = make_model(name, torch.float32, **wide)
    model.pack(mode).save_pretrained(tmp_path)
    size = (tmp_path / "model.safetensors").stat().st_size
    expected = checkpoint_bytes(model.config, mode)
    assert expected <= size <= 1.05 * expected
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        tensors = [file.get_tensor(key) for key in file.keys()]  # noqa: SIM118
    assert sum(tensor.nbytes for tensor in tensors) == expected


@contract(22, breaks=WIDE_CODES)
@pytest.mark.parametrize("preset", ["tiny", "small", "base"])
@modes
def test_presets_take_their_bits(preset, mode) -> None:
    """Bits x weights / 8 + scales within 5 %, by name of tensor, on a model that takes no memory."""
    config = SheafStateConfig.from_preset(preset, quantization=mode, packed_weights=True)
    with torch.device("meta"):
        packed = SheafStateForCausalLM(config)
        full = SheafStateForCausalLM(SheafStateConfig.from_preset(preset))
    stored = {name: tensor.nbytes for name, tensor in packed.named_buffers()}
    codes = sum(size for name, size in stored.items() if name.endswith("codes"))
    scales = sum(size for name, size in stored.items() if name.endswith("scale"))
    kept = {name for name, _ in packed.named_parameters()}
    weights = sum(p.numel() for name, p in full.named_parameters() if name not in kept)
    bits = {"int8": 8, "int4": 4, "ternary": 2}[mode]
    assert weights > 0.9 * sum(p.numel() for name, p in full.named_parameters() if "embed" not in name)
    assert codes + scales <= 1.05 * (bits * weights / 8 + scales)
    assert codes >= bits * weights / 8


@contract(
    22,
    breaks=Mutation(
        "nn/quant_linear.py",
        "return packed_map(x, self.codes",
        "return packed_map(x, 1 * self.codes.roll(1, 0)",
        "rows of a packed matrix are mixed up",
    ),
)
@each_once
def test_saved_and_loaded_it_is_the_same_and_stays_packed(name, mode, tmp_path: Path) -> None:
    packed = make_model(name, torch.float32).pack(mode)
    packed.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = tokens(2, 30)
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, packed(ids).logits)
        quantised = make_model(name, torch.float32, quantization=mode)(ids).logits
        assert (loaded(ids).logits - quantised).abs().mean() <= 0.05 * quantised.std()
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    maps = [
        module for module in loaded.modules() if isinstance(module, torch.nn.Linear) and module is not loaded.lm_head
    ]
    assert maps
    assert all(isinstance(module, PackedLinear) and module.codes.dtype == torch.int8 for module in maps)
    narrow = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {b.dtype for n, b in narrow.named_buffers() if n.endswith("codes")} == {torch.int8}


@contract(22, breaks=SHIFTED)
@modes
@examples(1)
@given(prompt=st.integers(1, 12), seed=st.integers(0, 99))
def test_it_generates_what_its_quantised_self_does(mode, prompt, seed) -> None:
    quantised = make_model("mixture", seed=seed, quantization=mode)
    ids = tokens(2, prompt, seed)
    written = [model.generate(ids, max_new_tokens=12, do_sample=False) for model in (quantised, quantised.pack())]
    assert torch.equal(*written)


@modes
def test_a_gradient_passes_through_to_the_inputs(mode) -> None:
    """So that adapters can be trained on a packed model."""
    quantised = make_model("mixture", quantization=mode)
    gradients = []
    for model in (quantised, quantised.pack()):
        embedded = model.get_input_embeddings()(tokens(1, 20)).detach().requires_grad_()
        model(inputs_embeds=embedded, labels=tokens(1, 20)).loss.backward()
        gradients.append(embedded.grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-9)


def test_what_cannot_be_packed_is_refused() -> None:
    model = make_model("local", torch.float32)
    with pytest.raises(InputError, match="one of int8, int4, ternary"):
        model.pack()
    with pytest.raises(InputError, match="not 'int3'"):
        model.pack("int3")
    with pytest.raises(InputError, match="packed already, as int8"):
        model.pack("int8").pack("int4")
    with pytest.raises(InputError, match="packed_weights needs"):
        SheafStateConfig(packed_weights=True)
