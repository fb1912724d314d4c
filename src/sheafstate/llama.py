"""A Llama as a special case: the complete site, plain gluing, one SwiGLU, and the Llama's own weights.

The model returned computes what the Llama computes, and is one of this package's in everything else. With a window,
its heads read the last positions alone, as a Llama with a band mask does. Source: DESIGN §3, Plain Llama.
"""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedModel

from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.shapes import Float, Tensor

__all__ = ["from_llama"]


def from_llama(llama: PreTrainedModel, window: int | None = None) -> SheafStateForCausalLM:
    """Copy a Llama into a model with ``site="complete"`` and ``gluing="plain"``.

    Key and value heads that several query heads share are repeated, so the state is that of as many heads as there are
    queries. Dropout, which only training knows, is left out.

    Args:
        llama: the model; it is not changed, and shares nothing with the copy.
        window: positions that a head reads, itself included; ``None`` for all of them.

    Returns:
        a model in evaluation mode, in the Llama's dtype and on its device.

    Raises:
        InputError: no Llama, or one with rotary scaling, biases or another activation, which cannot be expressed.
    """
    if not isinstance(llama, LlamaForCausalLM):
        raise InputError(f"only a LlamaForCausalLM can be copied, not a {type(llama).__name__}")
    theirs: Any = llama.config
    config = _config(theirs, window)
    with torch.device("meta"):
        ours = SheafStateForCausalLM(config)
    group = theirs.num_attention_heads // theirs.num_key_value_heads
    copies = {name: weight.detach().clone() for name, weight in _weights(llama, group)}
    ours.load_state_dict(copies, assign=True)
    ours.tie_weights()
    ours.generation_config = GenerationConfig.from_dict(llama.generation_config.to_dict())
    return ours.eval()


def _config(theirs: Any, window: int | None) -> SheafStateConfig:
    """The configuration that a Llama's weights fit."""
    _check(theirs)
    return SheafStateConfig(
        vocab_size=theirs.vocab_size,
        d_model=theirs.hidden_size,
        num_layers=theirs.num_hidden_layers,
        heads={"local": theirs.num_attention_heads},
        d_head=theirs.head_dim,
        site="complete" if window is None else "window",
        window=SheafStateConfig.window if window is None else window,
        gluing="plain",
        output_gate=False,
        d_ff=theirs.intermediate_size,
        num_experts=0,
        d_expert=0,
        rope_theta=float(theirs.rope_parameters["rope_theta"]),
        norm_eps=theirs.rms_norm_eps,
        initializer_range=theirs.initializer_range,
        tie_word_embeddings=theirs.tie_word_embeddings,
        bos_token_id=_token(theirs.bos_token_id),
        eos_token_id=theirs.eos_token_id if isinstance(theirs.eos_token_id, list) else _token(theirs.eos_token_id),
        pad_token_id=_token(theirs.pad_token_id),
    )


def _check(theirs: Any) -> None:
    kind = theirs.rope_parameters.get("rope_type", "default")
    if kind != "default":
        raise InputError(
            f"a Llama with rotary scaling of type {kind!r} cannot be expressed; the type must be 'default'"
        )
    for name in ("attention_bias", "mlp_bias"):
        if getattr(theirs, name):
            raise InputError(f"a Llama with {name} cannot be expressed: the linear maps have no biases")
    if theirs.hidden_act not in ("silu", "swish"):
        raise InputError(f"a Llama with hidden_act {theirs.hidden_act!r} cannot be expressed; it must be 'silu'")
    if theirs.num_attention_heads % theirs.num_key_value_heads:
        heads, shared = theirs.num_attention_heads, theirs.num_key_value_heads
        raise InputError(f"num_key_value_heads must divide num_attention_heads {heads}, not be {shared}")


def _token(token: int | None) -> int | None:
    """Old configurations write -1 where there is no such token."""
    return None if token is None or token < 0 else token


def _weights(llama: Any, group: int) -> Iterator[tuple[str, Tensor]]:
    """The Llama's weights under our names; ``group`` query heads share a key and a value."""
    yield "model.embed_tokens.weight", llama.model.embed_tokens.weight
    yield "model.norm.weight", llama.model.norm.weight
    yield "lm_head.weight", llama.lm_head.weight
    for number, layer in enumerate(llama.model.layers):
        read, mlp, ours = layer.self_attn, layer.mlp, f"model.layers.{number}."
        shared = [_repeat_heads(part.weight, read.head_dim, group) for part in (read.k_proj, read.v_proj)]
        yield ours + "norm.weight", layer.input_layernorm.weight
        yield ours + "in_proj.weight", torch.cat([read.q_proj.weight, *shared])
        yield ours + "gluing.out_proj.weight", read.o_proj.weight
        yield ours + "expert_norm.weight", layer.post_attention_layernorm.weight
        yield ours + "experts.shared_up.weight", torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        yield ours + "experts.shared_down.weight", mlp.down_proj.weight


def _repeat_heads(weight: Float[Tensor, "few d"], width: int, group: int) -> Float[Tensor, "many d"]:
    return weight.unflatten(0, (-1, width)).repeat_interleave(group, 0).flatten(0, 1)
