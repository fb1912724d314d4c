import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from sheafstate.data import load_tokenizer
from tests.variants import make_model


@pytest.fixture(scope="session")
def tokenizer():
    return load_tokenizer("byte")


@pytest.fixture(scope="session")
def models(tokenizer) -> dict[str, PreTrainedModel]:
    """A model that carries a state and one that does not, both with weights that matter."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
    )
    return {
        "sheaf": make_model("mixture", torch.float32, vocab_size=len(tokenizer)),
        "llama": LlamaForCausalLM(config).eval(),
    }
