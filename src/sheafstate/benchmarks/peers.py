"""The peers: models of transformers, in shapes that their authors use, brought to a number of parameters.

A Llama has as many heads as its width holds and gets the feed-forward width that fits. A Mamba-2 has layers of an inner
width of twice the model's, heads of 64 and no feed-forward part; its depth and the size of its state fit it. A gated
delta net has, as its authors have it, keys of three quarters of the width in all and values twice as wide, a
convolution of four taps, a gate behind it, and a feed-forward part that fits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

from sheafstate.errors import InputError
from sheafstate.ops.scan import causal_convolution, selective_scan

__all__ = [
    "PEERS",
    "Shape",
    "llama_config",
    "make_peer",
    "mamba2_config",
    "non_embedding",
    "scan_with_ours",
    "state_elements",
]

MOST_POSITIONS = 2**20
STATE_SIZES = range(64, 193, 8)
"""Sizes of Mamba-2's state among which the one is chosen that comes nearest to the number of parameters."""
MAMBA_HEAD = 64
STEPS = (1e-3, 0.1)
"""Between these the first step sizes of a gated delta net are drawn, evenly by their logarithms."""
INTO_RESIDUAL = 0.02
"""How much smaller than 1/sqrt(fan-in) maps into the residual stream start, where a peer starts as our model does."""
NO_MARKS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


@dataclass(frozen=True)
class Shape:
    """What a peer is made of.

    Attributes:
        vocab_size: tokens.
        width: of the residual stream.
        layers: number of them; a Mamba-2 chooses its own.
        d_head: width of a head; a Mamba-2 has heads of 64.
        parameters: wanted, without embeddings.
        fan_in: whether linear maps start as ours do, at 1/sqrt(fan-in), those into the residual stream at a fiftieth of
            that; otherwise as transformers starts them.
    """

    vocab_size: int
    width: int
    layers: int
    d_head: int
    parameters: int
    fan_in: bool = False

    def __post_init__(self) -> None:
        sizes = (self.vocab_size, self.width, self.d_head, self.parameters)
        if any(not isinstance(n, int) or n < 1 for n in sizes) or self.d_head > self.width:
            raise InputError(f"a peer needs a width, a smaller width of a head, and a number of parameters: {self}")
        if not isinstance(self.layers, int) or self.layers < 0:
            raise InputError(f"the layers of a peer must be a number, not {self.layers!r}")


def llama_config(shape: Shape, d_ff: int | None = None) -> LlamaConfig:
    """A Llama with SDPA.

    Args:
        shape: what it is made of.
        d_ff: width of the feed-forward part; by default the one that fits.
    """
    heads, width = shape.width // shape.d_head, shape.width
    if d_ff is None:
        layer = 4 * width * heads * shape.d_head + 2 * width
        d_ff = _fitted(shape, shape.layers * layer + width, shape.layers * 3 * width, "a Llama")
    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=width,
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=shape.d_head,
        intermediate_size=d_ff,
        max_position_embeddings=MOST_POSITIONS,
        tie_word_embeddings=True,
        **NO_MARKS,
    )
    config._attn_implementation = "sdpa"
    return config


def mamba2_config(shape: Shape) -> Mamba2Config:
    """A Mamba-2 whose depth and state size bring it to the number of parameters."""
    width, inner, heads = shape.width, 2 * shape.width, 2 * shape.width // MAMBA_HEAD
    if inner % MAMBA_HEAD:
        raise InputError(f"the width of a Mamba-2 must be a multiple of {MAMBA_HEAD // 2}, not {width}")

    def layer(state: int) -> int:
        convolved = inner + 2 * state
        return width * (inner + convolved + heads) + 5 * convolved + 3 * heads + inner + inner * width + width

    sizes = [(max(1, round(shape.parameters / layer(state))), state) for state in STATE_SIZES]
    layers, state = min(sizes, key=lambda size: abs(size[0] * layer(size[1]) + width - shape.parameters))
    return Mamba2Config(
        vocab_size=shape.vocab_size,
        hidden_size=width,
        num_hidden_layers=layers,
        num_heads=heads,
        head_dim=MAMBA_HEAD,
        state_size=state,
        n_groups=1,
        tie_word_embeddings=True,
        **NO_MARKS,
    )


def gated_delta_net_config(shape: Shape) -> Qwen3NextConfig:
    """A gated delta net: the linear layers of a Qwen3-Next alone, without experts."""
    width, taps = shape.width, 4
    heads = max(1, round(0.75 * width / shape.d_head))
    keys, values = heads * shape.d_head, 2 * heads * shape.d_head
    mixer = width * (2 * keys + 2 * values + 2 * heads) + taps * (2 * keys + values) + 2 * heads + 2 * shape.d_head
    layer = mixer + values * width + 2 * width
    d_ff = _fitted(shape, shape.layers * layer + width, shape.layers * 3 * width, "a gated delta net")
    return Qwen3NextConfig(
        vocab_size=shape.vocab_size,
        hidden_size=width,
        num_hidden_layers=shape.layers,
        layer_types=["linear_attention"] * shape.layers,
        linear_num_key_heads=heads,
        linear_num_value_heads=heads,
        linear_key_head_dim=shape.d_head,
        linear_value_head_dim=2 * shape.d_head,
        linear_conv_kernel_dim=taps,
        intermediate_size=d_ff,
        num_experts=0,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=shape.d_head,
        max_position_embeddings=MOST_POSITIONS,
        tie_word_embeddings=True,
        **NO_MARKS,
    )


def _fitted(shape: Shape, rest: int, one: int, what: str) -> int:
    """The feed-forward width with which ``rest`` comes nearest to the parameters, each unit costing ``one``."""
    if not shape.layers:
        raise InputError(f"{what} needs a number of layers")
    d_ff = round((shape.parameters - rest) / one)
    if d_ff < 1:
        raise InputError(f"{what} of {shape.layers} layers has {rest:,} parameters, over {shape.parameters:,}")
    return d_ff


def _mamba2(shape: Shape) -> PreTrainedModel:
    return scan_with_ours(Mamba2ForCausalLM(mamba2_config(shape)))


def _gated_delta_net(shape: Shape) -> PreTrainedModel:
    """With steps that begin as in Mamba-2, from a thousandth to a tenth, as its authors draw them.

    Transformers begins them at softplus(1), with which nearly every head forgets within a token.
    """
    model = Qwen3NextForCausalLM(gated_delta_net_config(shape))
    least, most = map(math.log, STEPS)
    with torch.no_grad():
        for layer in model.model.layers:
            bias = layer.linear_attn.dt_bias
            dt = torch.exp(torch.rand(bias.shape) * (most - least) + least)
            bias.copy_(dt + torch.log(-torch.expm1(-dt)))
    return model


PEERS: dict[str, Callable[[Shape], PreTrainedModel]] = {
    "llama": lambda shape: LlamaForCausalLM(llama_config(shape)),
    "mamba2": _mamba2,
    "gated-delta-net": _gated_delta_net,
}
"""Name of a peer → how to make it, with random weights, from a shape."""


def make_peer(name: str, shape: Shape) -> PreTrainedModel:
    """A peer with random weights.

    Raises:
        InputError: unknown peer, or one that has more parameters than wanted without a feed-forward part.
    """
    if name not in PEERS:
        raise InputError(f"a peer must be one of {', '.join(PEERS)}, not {name!r}")
    model: PreTrainedModel = PEERS[name](shape)
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv1d):  # a vector of taps a channel, which nobody decays
            setattr(module.weight, "_no_weight_decay", True)  # noqa: B010
        elif shape.fan_in and isinstance(module, nn.Linear) and path != "lm_head":
            small = INTO_RESIDUAL if path.endswith(("o_proj", "out_proj", "down_proj")) else 1.0
            nn.init.normal_(module.weight, std=small / math.sqrt(module.in_features))
    return model


def non_embedding(model: PreTrainedModel) -> int:
    """Parameters of a model whose readout is its embedding, without these."""
    total = sum(p.numel() for p in model.parameters())
    return total - model.get_input_embeddings().weight.numel()  # type: ignore[operator]


def state_elements(model: PreTrainedModel, context: int) -> int:
    """Numbers that a peer carries while it decodes one row behind a context."""
    config: Any = model.config
    if isinstance(config, LlamaConfig):
        return 2 * config.num_hidden_layers * config.num_attention_heads * (config.head_dim or 0) * context
    if isinstance(config, Mamba2Config):
        inner = config.num_heads * config.head_dim
        tail = (inner + 2 * config.n_groups * config.state_size) * config.conv_kernel
        return int(config.num_hidden_layers * (inner * config.state_size + tail))
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    tail = (2 * keys + values) * config.linear_conv_kernel_dim
    return int(config.num_hidden_layers * (values * config.linear_key_head_dim + tail))


def scan_with_ours(model: Mamba2ForCausalLM) -> Mamba2ForCausalLM:
    """Let a Mamba-2 read by our scan where it has no cache, so that it is not held back by its path for CPUs.

    The functions are the same (``tests/benchmarks/test_peers.py``). The model is changed and returned.
    """
    for mixer in model.modules():
        if isinstance(mixer, Mamba2Mixer):
            mixer.forward = MethodType(_mix, mixer)
    return model


def _mix(
    mixer: Any,
    hidden_states: torch.Tensor,
    cache: Any = None,
    attention_mask: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """What a ``Mamba2Mixer`` of one group computes: projection, convolution, selective scan, gated norm, projection."""
    if cache is not None:
        given: torch.Tensor = type(mixer).forward(mixer, hidden_states, cache, attention_mask, **kwargs)
        return given
    padding = None if attention_mask is None else attention_mask[:, : hidden_states.shape[1], None]
    if padding is not None:
        hidden_states = hidden_states * padding
    sizes = [mixer.intermediate_size, mixer.conv_dim, mixer.num_heads]
    gate, convolved, dt = mixer.in_proj(hidden_states).split(sizes, -1)
    taps = mixer.conv1d.weight.squeeze(1).to(convolved.dtype)
    tail = convolved.new_zeros(len(convolved), taps.shape[1] - 1, convolved.shape[2])
    convolved = mixer.act(causal_convolution(convolved, taps, mixer.conv1d.bias.to(convolved.dtype), None, tail))
    if padding is not None:
        convolved = convolved * padding
    x, B, C = convolved.split([mixer.intermediate_size, mixer.ssm_state_size, mixer.ssm_state_size], -1)
    x = x.unflatten(-1, (mixer.num_heads, mixer.head_dim))
    dt = functional.softplus(dt.float() + mixer.dt_bias).clamp(*mixer.time_step_limit)
    start = torch.zeros(dt.shape[:2], dtype=torch.bool, device=dt.device)
    y, _ = selective_scan(x, dt, -dt * mixer.A_log.float().exp(), B, C, start)
    y = y + mixer.D[:, None] * x
    mixed: torch.Tensor = mixer.out_proj(mixer.norm(y.flatten(2), gate).to(gate.dtype))
    return mixed
