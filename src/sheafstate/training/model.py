"""The model that a run trains, from its options and its tokenizer."""

import os
from collections.abc import Callable

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.accounting import parameters
from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.training.options import TrainingOptions

__all__ = ["ModelFactory", "build_model"]

_BYTES_OF_A_NUMBER, _GIB = 4, 2**30

ModelFactory = Callable[[TrainingOptions, PreTrainedTokenizerBase], PreTrainedModel]
"""Makes an untrained model that fits a tokenizer; called with the seed set."""


def build_model(options: TrainingOptions, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A Sheaf-State model of the options' preset, with a token for each of the tokenizer's.

    Raises:
        InputError: the preset or an override is impossible.
    """
    if "vocab_size" in options.overrides:
        raise InputError(f"vocab_size follows from the tokenizer ({len(tokenizer)} tokens) and cannot be set")
    marks = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos")}
    config = SheafStateConfig.from_preset(
        options.preset, vocab_size=len(tokenizer), **(marks | dict(options.overrides))
    )
    _check_memory(config)
    model = SheafStateForCausalLM(config)
    # Named only now, for an embedding does not learn the id that pads, and here the same id begins every text.
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def _check_memory(config: SheafStateConfig) -> None:
    """Refuse what cannot be built here: an allocation beyond the memory may end the process without a word."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system tells
        return
    count = parameters(config).total
    if count * _BYTES_OF_A_NUMBER > memory:
        raise InputError(
            f"the model has {count:,} parameters, {count * _BYTES_OF_A_NUMBER / _GIB:,.0f} GiB in float32, and this "
            f"machine has {memory / _GIB:,.0f} GiB of memory: make it smaller"
        )
