"""Promise 18: a saved model loads with identical logits, tied weights stored once, in safetensors alone."""

import tempfile
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from sheafstate import SheafStateForCausalLM
from tests.variants import VARIANTS, examples, make_model, tokens

from .promises import Mutation, contract

UNTIED = Mutation(
    "modeling.py",
    '_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}',
    "_tied_weights_keys = {}",
    "the readout's weight is no longer known to be the embedding's",
)
FORGOTTEN = Mutation(
    "nn/site.py",
    'self.register_buffer("projection", torch.empty(self.maps * self.d_address, config.d_model))',
    'self.register_buffer("projection", torch.empty(self.maps * self.d_address, config.d_model), persistent=False)',
    "the fixed maps to address vectors are not saved",
)


def stored(folder: Path) -> list[str]:
    """Names of the tensors in all files of a checkpoint, and nothing but safetensors and JSON there."""
    assert {path.suffix for path in folder.iterdir()} <= {".safetensors", ".json"}
    names: list[str] = []
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names += file.keys()
    return names


@contract(18, breaks=(UNTIED, FORGOTTEN))
@examples(25)
@given(
    name=st.sampled_from(list(VARIANTS)),
    quantization=st.sampled_from(["none", "none", "int8", "int4", "ternary"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    tied=st.booleans(),
    shard=st.sampled_from(["1GB", "20KB", "3KB"]),
    again=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_is_saved_loads_to_the_bit(name, quantization, dtype, tied, shard, again, seed) -> None:
    model = make_model(name, dtype, seed, tie_word_embeddings=tied, quantization=quantization)
    model.generation_config = GenerationConfig(max_new_tokens=7, temperature=0.25, do_sample=True, eos_token_id=3)
    ids, loaded = tokens(2, 30), model
    for _ in range(2 if again else 1):
        with tempfile.TemporaryDirectory() as name_of_folder:
            folder = Path(name_of_folder)
            loaded.save_pretrained(folder, max_shard_size=shard)
            names = stored(folder)
            loaded = AutoModelForCausalLM.from_pretrained(folder)
            assert AutoConfig.from_pretrained(folder).to_dict() == loaded.config.to_dict()
            if shard == "3KB":
                assert len(list(folder.glob("*.safetensors"))) > 1
    assert isinstance(loaded, SheafStateForCausalLM)
    assert not loaded.training
    assert len(names) == len(set(names)) == len(dict(model.named_parameters())) + len(dict(model.named_buffers()))
    assert sum(key.endswith(("lm_head.weight", "embed_tokens.weight")) for key in names) == (1 if tied else 2)
    assert (loaded.lm_head.weight is loaded.get_input_embeddings().weight) is tied
    assert loaded.generation_config.to_diff_dict() == model.generation_config.to_diff_dict()
    with torch.no_grad():
        assert torch.equal(loaded(ids, use_cache=False).logits, model(ids, use_cache=False).logits)
