"""A small checkpoint on disk: a model of bytes with random weights, and its tokenizer."""

from pathlib import Path

import torch

from sheafstate.data import load_tokenizer
from tests.variants import make_model


def save_small_checkpoint(folder: Path) -> Path:
    """Write it into a folder, as ``save_pretrained`` does."""
    tokenizer = load_tokenizer("byte")
    make_model("mixture", torch.float32, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
