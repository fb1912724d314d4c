"""E: a shared SwiGLU and small experts, one of which a router chooses. Source: DESIGN §3, Experts.

A router that saw the site as well, each expert with a home type, was no better (docs/experiments.md).
"""

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.quant_linear import empty_packed, linear_map, packed_map, packed_values, quantized_map
from sheafstate.nn.records import Rows
from sheafstate.ops import without_autocast
from sheafstate.ops.quantize import Quantization
from sheafstate.ops.route import LinearMap, routed_swiglu, routed_swiglu_reference, swiglu
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["Experts", "Load", "balance_loss"]


@dataclass(frozen=True)
class Load:
    """How the router spread the positions.

    Attributes:
        choice: chosen expert of every position.
        probabilities: the router's distribution.
        balance: sum over documents of (positions x E sum_e f_e P_e); divide by the positions for the auxiliary loss.
    """

    choice: Int[Tensor, "B T"]
    probabilities: Float[Tensor, "B T E"]
    balance: Float[Tensor, ""]


def balance_loss(choice: Int[Tensor, "B T"], probabilities: Float[Tensor, "B T E"], rows: Rows) -> Float[Tensor, ""]:
    """Token-weighted sum over documents of E sum_e f_e P_e, f the share of positions and P the mean probability.

    Documents are balanced each for itself, so that packing, padding, processes and accumulation change nothing.
    Source: Fedus et al., "Switch Transformers" (2021), equation 4.
    """
    batch, _, experts = probabilities.shape
    documents = rows.segment.shape[1] + 1
    number = (rows.segment + torch.arange(batch, device=choice.device)[:, None] * documents).flatten()
    valid = rows.valid.flatten()[:, None].to(probabilities.dtype)
    chosen = functional.one_hot(choice.flatten(), experts).to(probabilities.dtype) * valid
    blank = probabilities.new_zeros(batch * documents, experts)
    counts = blank.index_add(0, number, chosen)
    mass = blank.index_add(0, number, probabilities.flatten(0, 1) * valid)
    positions = counts.sum(-1).clamp(min=1)
    return experts * ((counts * mass).sum(-1) / positions).sum()


class Experts(nn.Module):
    """Shared SwiGLU plus the top-1 expert, weighted by its probability; no token is dropped."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        d, self.num_experts = config.d_model, config.num_experts
        self.quantization, self.packed = Quantization(config.quantization), config.packed_weights
        self.range = config.initializer_range
        self.shared = config.d_ff > 0
        if self.shared:
            down_std = self.range / math.sqrt(config.d_ff)
            self.shared_up = linear_map(config, d, 2 * config.d_ff)
            self.shared_down = linear_map(config, config.d_ff, d, down_std)
        self.stacks = {"up": (self.num_experts, 2 * config.d_expert, d), "down": (self.num_experts, d, config.d_expert)}
        if self.num_experts:
            for name, shape in self.stacks.items():
                self._make_stack(name, shape)
            self.router = nn.Parameter(torch.empty(self.num_experts, d))

    def _make_stack(self, name: str, shape: tuple[int, int, int]) -> None:
        if not self.packed:
            setattr(self, name, nn.Parameter(torch.empty(shape)))
            return
        for part, room in empty_packed(shape, self.quantization, f"{name}_").items():
            self.register_buffer(part, room)

    def initial_values(self) -> dict[str, Tensor]:
        """Fan-in scaled weights; a router without strong opinions."""
        if not self.num_experts:
            return {}
        values: dict[str, Tensor] = {}
        for name, shape in self.stacks.items():
            scale = self.range if name == "down" else 1.0
            weight = torch.randn(shape) * scale / math.sqrt(shape[-1])
            values |= packed_values(weight, self.quantization, f"{name}_") if self.packed else {name: weight}
        values["router"] = torch.randn(self.router.shape) / math.sqrt(self.router.shape[-1]) * 0.1
        return values

    def packed_values(self, mode: Quantization) -> dict[str, dict[str, Tensor]]:
        """What packed experts hold in place of the stacked weights."""
        names = self.stacks if self.num_experts else ()
        return {name: packed_values(getattr(self, name), mode, f"{name}_") for name in names}

    def _linear_maps(self, name: str) -> list[LinearMap]:
        """The linear map that each expert has in a stack."""
        if self.packed:
            parts = zip(getattr(self, f"{name}_codes"), getattr(self, f"{name}_scale"), strict=True)
            return [partial(packed_map, codes=codes, scale=scale, mode=self.quantization) for codes, scale in parts]
        return [partial(quantized_map, weight=weight, mode=self.quantization) for weight in getattr(self, name)]

    def forward(self, x: Float[Tensor, "B T D"], rows: Rows) -> tuple[Float[Tensor, "B T D"], Load | None]:
        """Refine every position."""
        y = swiglu(x, self.shared_up, self.shared_down) if self.shared else torch.zeros_like(x)
        if not self.num_experts:
            return y, None
        probabilities = self._route(x)
        weight, choice = probabilities.max(-1)
        run = routed_swiglu_reference if torch.compiler.is_compiling() else routed_swiglu
        experts = list(zip(self._linear_maps("up"), self._linear_maps("down"), strict=True))
        routed = run(x.flatten(0, 1), choice.flatten(), experts).unflatten(0, x.shape[:2])
        # a step of decoding is no training: nobody balances it
        balance = weight.new_zeros(()) if rows.is_step else balance_loss(choice, probabilities, rows)
        return torch.addcmul(y, weight[..., None].to(x.dtype), routed), Load(choice, probabilities, balance)

    def _route(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T E"]:
        wide = torch.promote_types(x.dtype, torch.float32)
        with without_autocast(x):
            return functional.linear(x.to(wide), self.router.to(wide)).softmax(-1)
