"""G: gluing sections at the output patch. Sections that agree on their overlap pass; the others are held back.

With licence c0, restrictions r_h = rho_h y_h and masses m_h, the proposed global section, a head's residual and its
compatibility are

    g = sum c0 m r / sum c0 m,    e_h = mean((r_h - g)^2),    c_h = c0_h exp(-softplus(beta_h) e_h).

Source: DESIGN §3, Gluing.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.quant_linear import linear_map
from sheafstate.nn.records import Sections
from sheafstate.shapes import Float, Tensor

__all__ = ["Glued", "Gluing", "compatibilities", "normalize_section"]

LICENCE_BIAS = 2.0
SMALLEST_MASS = 1e-30


@dataclass(frozen=True)
class Glued:
    """What gluing returns beside the vector for the residual stream.

    Attributes:
        compatibility: c, in [0, 1]; ones where gluing is plain.
        residual: sum over heads of c_h e_h, a diagnostic; zeros unless gluing is by sheaf.
    """

    compatibility: Float[Tensor, "B T H"]
    residual: Float[Tensor, "B T"]


def normalize_section(
    values: Float[Tensor, "*batch H P"], mass: Float[Tensor, "*batch H"], eps: float = 1e-6
) -> Float[Tensor, "*batch H P"]:
    """y = m RMSNorm(o / m), and 0 where m = 0: normalising must not bring back what null took away."""
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    some = (mass > SMALLEST_MASS)[..., None]
    safe = torch.where(some, mass[..., None], 1.0)
    mean_square = (wide / safe).square().mean(-1, keepdim=True)
    return torch.where(some, wide * torch.rsqrt(mean_square + eps), 0.0)


def compatibilities(
    restricted: Float[Tensor, "*batch H P"],
    mass: Float[Tensor, "*batch H"],
    licence: Float[Tensor, "*batch H"],
    strictness: Float[Tensor, " H"],
) -> tuple[Float[Tensor, "*batch H"], Float[Tensor, "*batch H"]]:
    """Compatibilities and residuals of sections restricted to their overlap.

    Args:
        restricted: r_h.
        mass: m_h.
        licence: c0_h.
        strictness: softplus(beta_h), how fast disagreement closes a head.
    """
    weight = licence * mass
    total = weight.sum(-1, keepdim=True)
    proposed = (weight[..., None] * restricted).sum(-2) / total.clamp(min=SMALLEST_MASS)
    residual = (restricted - proposed[..., None, :]).square().mean(-1)
    return licence * torch.exp(-strictness * residual), residual


class Gluing(nn.Module):
    """From sections to one vector a position: ``sheaf``, ``licence`` (no residual) or ``plain`` (a concatenation)."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        self.heads, self.d_head, self.mode = config.num_heads, config.d_head, config.gluing
        self.gated = config.output_gate and self.mode != "plain"
        width = self.heads * self.d_head
        std = 1 / math.sqrt(width * 2 * config.num_layers)
        self.out_proj = linear_map(config, width, config.d_model, std)
        if self.mode != "plain":
            self.gamma = nn.Parameter(torch.empty(width))
            self.licence_bias = nn.Parameter(torch.empty(self.heads))
        if self.mode == "sheaf":
            self.beta = nn.Parameter(torch.empty(self.heads))
            if config.restriction == "learned":
                self.restriction = nn.Parameter(torch.empty(self.heads, self.d_head, self.d_head))
            elif config.restriction == "frozen":
                self.register_buffer("restriction", torch.empty(self.heads, self.d_head, self.d_head))
        self.learned_restriction = self.mode == "sheaf" and config.restriction == "learned"
        self.restricts = self.mode == "sheaf" and config.restriction != "identity"

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {
            "gate": self.heads * self.d_head if self.gated else 0,
            "licence": 0 if self.mode == "plain" else self.heads,
        }

    def initial_values(self) -> dict[str, Tensor]:
        """Open licences, identity (or random orthogonal-in-expectation) restrictions."""
        if self.mode == "plain":
            return {}
        values = {
            "gamma": torch.ones(self.heads * self.d_head),
            "licence_bias": torch.full((self.heads,), LICENCE_BIAS),
        }
        if self.mode == "sheaf":
            values["beta"] = torch.zeros(self.heads)
        if self.learned_restriction:
            values["restriction"] = torch.eye(self.d_head).repeat(self.heads, 1, 1)
        elif self.restricts:
            values["restriction"] = torch.randn(self.heads, self.d_head, self.d_head) / math.sqrt(self.d_head)
        return values

    def forward(self, sections: Sections, channels: dict[str, Tensor]) -> tuple[Float[Tensor, "B T D"], Glued]:
        """Glue the sections of every position."""
        values = torch.cat([section.values for section in sections.values()], 2)
        ones = values.new_ones(values.shape[:3], dtype=torch.promote_types(values.dtype, torch.float32))
        if self.mode == "plain":
            return self.out_proj(values.flatten(2)), Glued(ones, ones.new_zeros(ones.shape[:2]))
        parts = [(s.mass, s.values.shape[2]) for s in sections.values()]
        mass = torch.cat([ones[..., :n] if m is None else m.to(ones.dtype) for m, n in parts], -1)
        y = normalize_section(values, mass)
        licence = torch.sigmoid(channels["licence"].to(ones.dtype) + self.licence_bias)
        compatibility, residual = licence, ones.new_zeros(ones.shape[:2])
        if self.mode == "sheaf":
            restricted = torch.einsum("bthp,hqp->bthq", y, self.restriction.to(y.dtype)) if self.restricts else y
            compatibility, errors = compatibilities(restricted, mass, licence, functional.softplus(self.beta))
            residual = (compatibility * errors).sum(-1)
        glued = (self.gamma * (compatibility[..., None] * y).flatten(2)).to(values.dtype)
        if self.gated:
            glued = glued * functional.silu(channels["gate"])
        return self.out_proj(glued), Glued(compatibility, residual)
