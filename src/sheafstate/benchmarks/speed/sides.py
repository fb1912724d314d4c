"""The models that are timed: ours, and its peers with as many parameters without embeddings, within two per cent."""

from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM, PreTrainedModel
from transformers.utils import logging

from sheafstate.accounting import parameters
from sheafstate.benchmarks import peers
from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM

__all__ = ["OURS", "SIDES", "dense_config", "make_side", "mamba2_config"]

OURS = "sheaf-state"
VOCABULARY = 4096


def sheaf_config(preset: str) -> SheafStateConfig:
    """Our own side."""
    return SheafStateConfig.from_preset(preset, vocab_size=VOCABULARY)


def dense_config(preset: str) -> SheafStateConfig:
    """Our code over the complete site: heads as wide as the model together, one SwiGLU, no gate; a Llama."""
    ours = sheaf_config(preset)
    wanted, heads = parameters(ours).non_embedding, {"local": ours.d_model // ours.d_head}

    def sized(d_ff: int) -> SheafStateConfig:
        return SheafStateConfig.from_preset(
            preset,
            vocab_size=VOCABULARY,
            site="complete",
            heads=heads,
            output_gate=False,
            num_experts=0,
            d_expert=0,
            d_conv=1,
            d_ff=d_ff,
        )

    least = parameters(sized(0)).non_embedding
    one = parameters(sized(1)).non_embedding - least
    return sized(max(1, round((wanted - least) / one)))


def llama_config(preset: str) -> LlamaConfig:
    """A Llama of transformers of the same shape as :func:`dense_config`."""
    return peers.llama_config(_shape(preset), dense_config(preset).d_ff)


def mamba2_config(preset: str) -> Mamba2Config:
    """A Mamba-2 of transformers, as wide as ours; its depth and state size bring it to the number of parameters."""
    return peers.mamba2_config(_shape(preset))


def _shape(preset: str) -> peers.Shape:
    ours = sheaf_config(preset)
    wanted = parameters(ours).non_embedding
    return peers.Shape(VOCABULARY, ours.d_model, ours.num_layers, ours.d_head, wanted)


SIDES: dict[str, Callable[[str], PreTrainedModel]] = {
    OURS: lambda preset: SheafStateForCausalLM(sheaf_config(preset)),
    "llama": lambda preset: LlamaForCausalLM(llama_config(preset)),
    "mamba2": lambda preset: Mamba2ForCausalLM(mamba2_config(preset)),
    "complete": lambda preset: SheafStateForCausalLM(dense_config(preset)),
}
"""Name of a side → how to make its model, with random weights, for a preset of ours."""


def make_side(name: str, preset: str, seed: int = 0) -> PreTrainedModel:
    """A side's model with random weights, which change neither its speed nor its memory.

    Raises:
        InputError: unknown side or preset.
    """
    if name not in SIDES:
        raise InputError(f"a side must be one of {', '.join(SIDES)}, not {name!r}")
    torch.manual_seed(seed)
    logging.set_verbosity_error()  # that Mamba-2 runs without its kernels for GPUs is known
    return SIDES[name](preset)
