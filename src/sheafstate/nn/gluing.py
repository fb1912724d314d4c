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

from sheafstate.config import LICENSED, NORMALISED, SheafStateConfig
from sheafstate.nn.quant_linear import linear_map
from sheafstate.nn.records import Sections
from sheafstate.shapes import Float, Tensor

__all__ = ["Glued", "Gluing", "compatibilities", "join_sections", "normalize_section"]

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


def join_sections(sections: Sections) -> tuple[Float[Tensor, "B T H P"], Float[Tensor, "B T H"]]:
    """Sections and masses of all heads."""
    values = torch.cat([section.values for section in sections.values()], 2)
    ones = values.new_ones(values.shape[:3], dtype=torch.promote_types(values.dtype, torch.float32))
    parts = [(s.mass, s.values.shape[2]) for s in sections.values()]
    return values, torch.cat([ones[..., :n] if m is None else m.to(ones.dtype) for m, n in parts], -1)


def normalize_section(
    values: Float[Tensor, "*batch H P"], mass: Float[Tensor, "*batch H"], eps: float = 1e-6
) -> Float[Tensor, "*batch H P"]:
    """y = m RMSNorm(o / m), and 0 where m = 0: normalising must not bring back what null took away."""
    wide = values.to(torch.promote_types(values.dtype, torch.float32))
    some = mass > SMALLEST_MASS
    safe = torch.where(some, mass, 1.0)
    mean_square = (wide / safe[..., None]).square().mean(-1)
    return wide * torch.where(some, torch.rsqrt(mean_square + eps), 0.0)[..., None]


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
    """From sections to one vector a position: ``sheaf``, ``licence`` (no residual) and what leaves out more."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        self.heads, self.d_head, self.mode = config.num_heads, config.d_head, config.gluing
        self.gated = config.output_gate and self.mode != "plain"
        width = self.heads * self.d_head
        self.out_proj = linear_map(config, width, config.d_model, config.initializer_range / math.sqrt(width))
        self.normalised, self.licensed = self.mode in NORMALISED, self.mode in LICENSED
        self.whole_norm = self.mode == "gated-norm"
        self.scaled = config.channel_scale and (self.normalised or self.whole_norm)
        if self.scaled:
            self.gamma = nn.Parameter(torch.empty(width))
        if self.licensed:
            self.licence_bias = nn.Parameter(torch.empty(self.heads))
        self.initial_beta, self.section_norm = config.initial_beta, config.section_norm
        if self.mode == "sheaf":
            self.beta = nn.Parameter(torch.empty(self.heads))
            if config.restriction == "learned":
                self.restriction = nn.Parameter(torch.empty(self.heads, self.d_head, self.d_head))
            elif config.restriction == "frozen":
                self.register_buffer("restriction", torch.empty(self.heads, self.d_head, self.d_head))
        self.types = list(config.covers.values())
        self.pairwise = config.applies("pairwise_maps")
        if self.pairwise:
            # rho_ij is the block of type i's rows and type j's columns; those of a type to itself are not used
            side = len(self.types) * self.d_head
            self.pair_maps = nn.Parameter(torch.empty(side, side))
        self.learned_restriction = self.mode == "sheaf" and config.restriction == "learned"
        self.restricts = self.mode == "sheaf" and config.restriction != "identity"

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {
            "gate": self.heads * self.d_head if self.gated else 0,
            "licence": self.heads if self.licensed else 0,
        }

    def initial_values(self) -> dict[str, Tensor]:
        """Open licences, identity (or random orthogonal-in-expectation) restrictions."""
        values = {"gamma": torch.ones(self.heads * self.d_head)} if self.scaled else {}
        if self.licensed:
            values["licence_bias"] = torch.full((self.heads,), LICENCE_BIAS)
        if self.mode == "sheaf":
            values["beta"] = torch.full((self.heads,), self.initial_beta)
        if self.pairwise:
            values["pair_maps"] = torch.zeros(self.pair_maps.shape)
        if self.learned_restriction:
            values["restriction"] = torch.eye(self.d_head).repeat(self.heads, 1, 1)
        elif self.restricts:
            values["restriction"] = torch.randn(self.heads, self.d_head, self.d_head) / math.sqrt(self.d_head)
        return values

    def forward(
        self, sections: Sections, channels: dict[str, Tensor], refined: Float[Tensor, "B T H P"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Glued]:
        """Glue the sections of every position; ``refined`` stands in for the normalised ones."""
        values, mass = join_sections(sections)
        licence = torch.ones_like(mass)
        if self.licensed:
            licence = torch.sigmoid(channels["licence"].to(mass.dtype) + self.licence_bias)
        compatibility, residual = licence, mass.new_zeros(mass.shape[:2])
        if not self.normalised:
            glued = values.flatten(2) * functional.silu(channels["gate"]) if self.gated else values.flatten(2)
            if self.whole_norm:
                scale = self.gamma.to(glued.dtype) if self.scaled else None
                glued = functional.rms_norm(glued, glued.shape[-1:], scale, 1e-6)
            return self.out_proj(glued), Glued(compatibility, residual)
        compared = self.section_norm or self.mode == "sheaf" or refined is not None
        normalised = normalize_section(values, mass) if compared else values
        y = normalised if refined is None else refined
        if self.mode == "sheaf":
            restricted = torch.einsum("bthp,hqp->bthq", y, self.restriction.to(y.dtype)) if self.restricts else y
            compatibility, errors = compatibilities(restricted, mass, licence, functional.softplus(self.beta))
            residual = (compatibility * errors).sum(-1)
        if not self.section_norm:
            y = values.to(mass.dtype) + (0 if refined is None else refined - normalised)
        y = compatibility[..., None] * y if self.licensed else y
        if self.pairwise:
            y = y + self._messages(y)
        glued = (self.gamma * y.flatten(2) if self.scaled else y.flatten(2)).to(values.dtype)
        if self.gated:
            glued = glued * functional.silu(channels["gate"])
        return self.out_proj(glued), Glued(compatibility, residual)

    def _messages(self, y: Float[Tensor, "B T H P"]) -> Float[Tensor, "B T H P"]:
        """What every head hears from the other types: sum over j of rho_ij (mean of the heads of type j)."""
        count = len(self.types)
        means = torch.cat([part.mean(2) for part in y.split(self.types, 2)], -1)
        others = 1 - torch.eye(count, dtype=y.dtype, device=y.device)
        maps = self.pair_maps.to(y.dtype) * others.repeat_interleave(self.d_head, 0).repeat_interleave(self.d_head, 1)
        heard = functional.linear(means, maps).unflatten(-1, (count, 1, self.d_head)).unbind(2)
        return torch.cat([part.expand(-1, -1, n, -1) for part, n in zip(heard, self.types, strict=True)], 2)
