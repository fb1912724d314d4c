"""Small checkpoints on disk: a model of bytes with random weights, and its tokenizer."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sheafstate.data import load_tokenizer
from tests.variants import make_model


def save_small_checkpoint(folder: Path) -> Path:
    """Write it into a folder, as ``save_pretrained`` does."""
    tokenizer = load_tokenizer("byte")
    model = make_model("mixture", torch.float32, seed=1, vocab_size=len(tokenizer))
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.3)  # a distribution that is not all in one byte
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_small_llama(folder: Path) -> Path:
    """Write a Llama of bytes with random weights, and its tokenizer, into a folder."""
    tokenizer = load_tokenizer("byte")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=24,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
