"""G: gluing sections at the output patch, W_o(concat(c_h o_h) * silu(W_g h)).

``plain`` is c_h = 1. By ``sheaf`` a head needs a licence c0_h, a sigmoid of h, and sections that disagree on their
overlap are held back: with normalised sections y_h of mass m_h, the proposed global section, a head's residual and its
compatibility are

    g = sum c0 m y / sum c0 m,    e_h = mean((y_h - g)^2),    c_h = c0_h exp(-softplus(beta_h) e_h).

Source: DESIGN §3, Gluing. All heads share one stalk, so the restriction to the overlap is the identity; learning it
changed nothing, and what is glued keeps its size, for normalising it cost more than anything gained
(docs/experiments.md).
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
        compatibility: c, in [0, 1]; ``None`` unless gluing is by sheaf.
        residual: sum over heads of c_h e_h, a diagnostic; ``None`` unless gluing is by sheaf.
        shares: length of what a head adds to the residual stream, of the sum of all heads' lengths; ``None`` unless
            asked for.
    """

    compatibility: Float[Tensor, "B T H"] | None
    residual: Float[Tensor, "B T"] | None
    shares: Float[Tensor, "B T H"] | None = None


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
    normalized: Float[Tensor, "*batch H P"],
    mass: Float[Tensor, "*batch H"],
    licence: Float[Tensor, "*batch H"],
    strictness: Float[Tensor, " H"],
) -> tuple[Float[Tensor, "*batch H"], Float[Tensor, "*batch H"]]:
    """Compatibilities and residuals of normalised sections on their overlap.

    Args:
        normalized: y_h.
        mass: m_h.
        licence: c0_h.
        strictness: softplus(beta_h), how fast disagreement closes a head.
    """
    weight = licence * mass
    total = weight.sum(-1, keepdim=True)
    proposed = (weight[..., None] * normalized).sum(-2) / total.clamp(min=SMALLEST_MASS)
    residual = (normalized - proposed[..., None, :]).square().mean(-1)
    return licence * torch.exp(-strictness * residual), residual


class Gluing(nn.Module):
    """From sections to one vector a position."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        self.heads, self.d_head, self.sheaf = config.num_heads, config.d_head, config.gluing == "sheaf"
        self.gated = config.output_gate
        width = self.heads * self.d_head
        self.out_proj = linear_map(config, width, config.d_model, config.initializer_range / math.sqrt(width))
        if self.sheaf:
            self.licence_bias = nn.Parameter(torch.empty(self.heads))
            self.beta = nn.Parameter(torch.empty(self.heads))

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {
            "gate": self.heads * self.d_head if self.gated else 0,
            "licence": self.heads if self.sheaf else 0,
        }

    def initial_values(self) -> dict[str, Tensor]:
        """Open licences and an even strictness."""
        if not self.sheaf:
            return {}
        return {"licence_bias": torch.full((self.heads,), LICENCE_BIAS), "beta": torch.zeros(self.heads)}

    def forward(
        self, sections: Sections, channels: dict[str, Tensor], with_shares: bool = False
    ) -> tuple[Float[Tensor, "B T D"], Glued]:
        """Glue the sections of every position; ``with_shares`` asks how much of the result is whose."""
        glued, compatibility, residual = self._glue(sections, channels)
        shares = self._shares(glued.detach()) if with_shares else None
        return self.out_proj(glued), Glued(compatibility, residual, shares)

    def _glue(
        self, sections: Sections, channels: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B T H"] | None, Float[Tensor, "B T"] | None]:
        """The heads' sections side by side, held back and gated; compatibilities and their residual."""
        if self.gated and not self.sheaf and not torch.is_grad_enabled() and channels["gate"].shape[1] > 1:
            return _gated(sections, channels["gate"]), None, None
        y = torch.cat([section.values for section in sections.values()], 2)
        compatibility = residual = None
        if self.sheaf:
            ones = y.new_ones(y.shape[:3], dtype=torch.promote_types(y.dtype, torch.float32))
            parts = [(s.mass, s.values.shape[2]) for s in sections.values()]
            mass = torch.cat([ones[..., :n] if m is None else m.to(ones.dtype) for m, n in parts], -1)
            licence = torch.sigmoid(channels["licence"].to(mass.dtype) + self.licence_bias)
            strictness = functional.softplus(self.beta)
            compatibility, errors = compatibilities(normalize_section(y, mass), mass, licence, strictness)
            residual = (compatibility * errors).sum(-1)
            y = y * compatibility[..., None].to(y.dtype)
        glued = y.flatten(2)
        if self.gated:
            glued = glued * functional.silu(channels["gate"])
        return glued, compatibility, residual

    @torch.no_grad()
    def _shares(self, glued: Float[Tensor, "B T C"]) -> Float[Tensor, "B T H"]:
        """Weights say what a head reads, and not whether anything comes of it; lengths do (Kobayashi and others,
        *Attention is not only a weight: analyzing transformers with vector norms*, 2020)."""
        heads = glued.unflatten(-1, (self.heads, self.d_head))
        alone = torch.eye(self.heads, dtype=glued.dtype, device=glued.device)
        lengths = [self.out_proj((heads * only[:, None]).flatten(2)).norm(dim=-1) for only in alone]
        wide = torch.stack(lengths, -1).to(torch.promote_types(glued.dtype, torch.float32))
        return wide / wide.sum(-1, keepdim=True).clamp(min=torch.finfo(wide.dtype).tiny)


def _gated(sections: Sections, gate: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
    """All sections times silu of the gate, each put where it belongs: without gradients nothing is joined first."""
    glued = functional.silu(gate)
    values = [section.values.flatten(2) for section in sections.values()]
    for part, value in zip(glued.split_with_sizes([v.shape[-1] for v in values], -1), values, strict=True):
        part.mul_(value)
    return glued
