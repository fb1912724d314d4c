"""C and J: the site of a layer. Addresses, boundaries and licences that say which patches cover each position."""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Rows, Site
from sheafstate.ops.address import assign_addresses, random_directions, unit_vectors
from sheafstate.ops.product import linear_product
from sheafstate.patches import PatchType
from sheafstate.shapes import Float, Tensor

__all__ = ["LearnedSite"]

BOUNDARY_BIAS = -4.0
WRITE_BIAS = 2.0
ANCHOR_BIAS = -1.53
"""A unit normal is above 1.53 one time in 16: the rate of anchors at first."""
SMALLEST_LICENCE = 1e-12
SMALLEST_UNITY = 1e-12
"""The largest weight is e^8 at first: a floor of 1e-6 would leave a jump of 3e-3 of the mass on a border."""


def log_licence(logit: Tensor) -> Tensor:
    """log of relu(2 sigmoid(logit) - 1) = relu(tanh(logit / 2)); minus infinity at and below the threshold."""
    licensed = logit > 0
    size = torch.tanh(torch.where(licensed, logit, 1.0) / 2).clamp(min=SMALLEST_LICENCE)
    return torch.where(licensed, size.log(), -torch.inf)


def log_licence_step(logit: Tensor) -> Tensor:
    """:func:`log_licence` where no gradient is wanted: the logarithm of 0 does no harm."""
    return (logit / 2).tanh().clamp(min=0).log()


class LearnedSite(nn.Module):
    """Makes the site record from projections of h. Source: DESIGN §3, Boundaries and Addresses.

    The map to address vectors is random and fixed, as are the directions: what a position says of itself is learned,
    and where it is put follows from that. A map that was trained too was no better on text, and recall was not learned
    with it (docs/experiments.md).

    Args:
        config: says which types are in use.
    """

    directions: Tensor
    projection: Tensor

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        covers = config.covers
        self.maps, self.d_address = config.num_maps, config.d_address
        self.intervals = len(config.interval_types)
        self.writers = covers.get(PatchType.RETRIEVAL, 0) if config.write_licence else 0
        self.anchors = covers.get(PatchType.INSTRUCTION, 0)
        self.num_kept, self.orthogonal = config.num_kept, config.directions == "orthogonal"
        if self.maps:
            shape = (self.maps, self.d_address, config.num_addresses // 2)
            wide = torch.promote_types(torch.get_default_dtype(), torch.float32)
            self.register_buffer("directions", torch.empty(shape, dtype=wide))
            self.register_buffer("projection", torch.empty(self.maps * self.d_address, config.d_model))
        if self.intervals:
            self.boundary_bias = nn.Parameter(torch.empty(self.intervals))
        if self.writers:
            self.write_bias = nn.Parameter(torch.empty(self.writers))
        if self.anchors:
            self.anchor_bias = nn.Parameter(torch.empty(self.anchors))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LearnedSite":
        """Cast and move as any module, but leave the fixed directions in float32: addresses are scored in it."""
        exact = self.directions if self.maps else None
        super()._apply(fn, recurse)
        if exact is not None and self.directions.dtype.itemsize < torch.float32.itemsize:
            self.directions = exact.to(self.directions.device, torch.float32)
        return self

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {
            "boundary": self.intervals,
            "write": self.writers,
            "anchor": self.anchors,
        }

    def initial_values(self) -> dict[str, Tensor]:
        """Biases, and what is random and fixed."""
        values = {}
        if self.maps:
            shape = self.directions.shape
            values["directions"] = random_directions(*shape) if self.orthogonal else torch.randn(shape)
            values["projection"] = torch.randn(self.projection.shape) / math.sqrt(self.projection.shape[1])
        if self.intervals:
            values["boundary_bias"] = torch.full((self.intervals,), BOUNDARY_BIAS)
        if self.writers:
            values["write_bias"] = torch.full((self.writers,), WRITE_BIAS)
        if self.anchors:
            values["anchor_bias"] = torch.full((self.anchors,), ANCHOR_BIAS)
        return values

    def forward(self, h: Float[Tensor, "B T D"], channels: dict[str, Tensor], rows: Rows) -> Site:
        """Write the site of every position."""
        vectors = address = log_unity = log_carry = log_write = log_anchor = None
        if self.maps:
            raw = linear_product(h, self.projection.to(h.dtype))
            vectors = unit_vectors(raw.view(*raw.shape[:2], self.maps, self.d_address).transpose(1, 2))
            address, unity = assign_addresses(vectors, self.directions)
            log_unity = unity.clamp(min=SMALLEST_UNITY).log()
        if self.intervals:
            log_carry = functional.logsigmoid(-self._wide(channels["boundary"], self.boundary_bias))
        if self.writers:
            log_write = self._log_write(channels, rows)
        if self.anchors:
            log_anchor = self._log_anchor(channels, rows)
        return Site(rows, vectors, address, log_unity, log_carry, log_write, log_anchor)

    def _log_anchor(self, channels: dict[str, Tensor], rows: Rows) -> Tensor:
        logit = self._wide(channels["anchor"], self.anchor_bias).transpose(1, 2)
        if rows.settled is not None and rows.settled >= self.num_kept:
            return log_licence_step(logit)
        after_kept = (rows.valid & (rows.offset >= self.num_kept))[:, None]
        return log_licence(logit).masked_fill(~after_kept, -torch.inf)

    def _log_write(self, channels: dict[str, Tensor], rows: Rows) -> Tensor:
        logit = self._wide(channels["write"], self.write_bias).transpose(1, 2)
        return log_licence_step(logit) if rows.is_step else log_licence(logit)

    @staticmethod
    def _wide(logit: Tensor, bias: Tensor) -> Tensor:
        """Logits in float32 or wider."""
        return logit.to(torch.promote_types(logit.dtype, torch.float32)) + bias
