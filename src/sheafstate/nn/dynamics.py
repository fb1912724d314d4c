"""Φ: local selective state-space dynamics inside patches.

Syntax, sentence, topic and workspace heads run along the natural ordering with a d_state x d_head state; memory heads
run along the ordering by address with one vector per address. Source: DESIGN §3, Φ.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Sections, Site, required
from sheafstate.ops import cast
from sheafstate.ops.banded import inverse_permutation, run_starts, take_along
from sheafstate.ops.scan import causal_convolution, selective_scan
from sheafstate.patches import PATCHES, PatchType, Reader
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["Dynamics", "DynamicsState"]


@dataclass(frozen=True)
class DynamicsState:
    """What the dynamics carry from call to call.

    Attributes:
        tail: the last d_conv - 1 positions of the convolution's channels, zero where another document was.
        natural: states of the heads along the natural ordering.
        memory: one vector per memory head and address.
    """

    tail: Float[Tensor, "B V D"]
    natural: Float[Tensor, "B H N P"]
    memory: Float[Tensor, "B h K P"]


class Dynamics(nn.Module):
    """Selective state-space recurrences of the types that read by dynamics."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__()
        dynamic = {kind: n for kind, n in config.covers.items() if PATCHES[kind].reader is Reader.DYNAMICS}
        self.memories = dynamic.pop(PatchType.MEMORY, 0)
        self.natural = dynamic
        self.heads = sum(dynamic.values())
        self.d_head, self.d_state = config.d_head, config.d_state if self.heads else 0
        self.num_addresses = config.num_addresses
        order = list(config.interval_types)
        # which column of the site's boundaries each natural head uses; -1 for none
        self.boundary_of = [order.index(k) if k in order else -1 for k, n in dynamic.items() for _ in range(n)]
        self.width = (self.heads + self.memories) * self.d_head + 2 * self.d_state
        if self.width:
            self.conv_weight = nn.Parameter(torch.empty(self.width, config.d_conv))
            self.conv_bias = nn.Parameter(torch.empty(self.width))
            self.dt_bias = nn.Parameter(torch.empty(self.heads + self.memories))
            self.A_log = nn.Parameter(torch.empty(self.heads + self.memories))
            self.D = nn.Parameter(torch.empty(self.heads + self.memories))

    def channels(self) -> dict[str, int]:
        """What this part needs of the layer's input projection."""
        return {"convolved": self.width, "dt": self.heads + self.memories}

    def initial_values(self) -> dict[str, Tensor]:
        """Step sizes log-spaced over the types, unit decay rates, a convolution that starts near its last tap."""
        if not self.width:
            return {}
        kinds = [kind for kind, n in self.natural.items() for _ in range(n)] + [PatchType.MEMORY] * self.memories
        dt = torch.tensor([PATCHES[kind].dt for kind in kinds])
        taps = self.conv_weight.shape[1]
        weight = (torch.rand(self.conv_weight.shape) * 2 - 1) / taps**0.5
        return {
            "conv_weight": weight,
            "conv_bias": torch.zeros(self.width),
            "dt_bias": torch.log(torch.expm1(dt)),
            "A_log": torch.zeros_like(dt),
            "D": torch.ones_like(dt),
        }

    def initial_state(self, batch: int, like: Tensor) -> DynamicsState:
        """The state before the first token."""
        wide = torch.promote_types(like.dtype, torch.float32)
        taps = self.conv_weight.shape[1] if self.width else 1
        return DynamicsState(
            like.new_zeros(batch, taps - 1, self.width),
            like.new_zeros(batch, self.heads, self.d_state, self.d_head, dtype=wide),
            like.new_zeros(batch, self.memories, self.num_addresses, self.d_head, dtype=wide),
        )

    def forward(
        self,
        channels: dict[str, Tensor],
        site: Site,
        state: DynamicsState | None = None,
        keep_state: bool = False,
        with_edges: bool = False,
    ) -> tuple[Sections, DynamicsState | None]:
        """Sections of the dynamic types, and the state after the last position if it is to be kept."""
        if not self.width:
            empty = self.initial_state(site.rows.length.shape[0], next(iter(channels.values()))) if keep_state else None
            return {}, empty
        if state is not None and site.rows.is_step:
            return self._step(channels, site, state)
        carried = self.initial_state(site.rows.length.shape[0], channels["convolved"]) if state is None else state
        convolved = self._convolve(channels["convolved"], site.rows, carried.tail)
        sizes = [self.heads * self.d_head, self.memories * self.d_head, self.d_state, self.d_state]
        x, m, B, C = convolved.split(sizes, -1)
        valid = site.rows.valid[..., None]
        wide = torch.promote_types(channels["dt"].dtype, torch.float32)
        dt = functional.softplus(channels["dt"].to(wide) + self.dt_bias) * valid
        log_decay = -dt * self.A_log.exp()
        sections: Sections = {}
        new = carried
        if keep_state:
            new = replace(carried, tail=_last_taps(channels["convolved"], site.rows, carried.tail))
        if self.heads:
            x = x.unflatten(-1, (self.heads, self.d_head))
            y, natural = self._natural(x, dt, log_decay, B, C, site, carried.natural)
            new = replace(new, natural=natural)
            parts = y.split(list(self.natural.values()), 2)
            edges = [self._chain(site, kind, n) if with_edges else None for kind, n in self.natural.items()]
            sections |= {k: Section(p, None, e) for k, p, e in zip(self.natural, parts, edges, strict=True)}
        if self.memories:
            m = m.unflatten(-1, (self.memories, self.d_head))
            h = self.heads
            y, memory = self._memory(
                m, dt[..., h:], log_decay[..., h:], site, carried.memory, state is not None, keep_state
            )
            new = replace(new, memory=memory)
            sections[PatchType.MEMORY] = Section(y, None, self._address_chain(site) if with_edges else None)
        return sections, new if keep_state else None

    def _step(self, channels: dict[str, Tensor], site: Site, state: DynamicsState) -> tuple[Sections, DynamicsState]:
        """One position of every row. Writes into the state."""
        h, m, wide = self.heads, self.memories, state.natural.dtype
        taps = torch.cat([state.tail, cast(channels["convolved"], state.tail.dtype)], 1)
        convolved = (taps * cast(self.conv_weight, taps.dtype).T).sum(1) + cast(self.conv_bias, taps.dtype)
        sizes = [(h + m) * self.d_head, self.d_state, self.d_state]
        x, B, C = functional.silu(convolved).split_with_sizes(sizes, -1)
        x = x.view(-1, h + m, self.d_head)
        dt = functional.softplus(cast(channels["dt"].squeeze(1), wide) + self.dt_bias)
        unity = required(site.log_unity)[:, :m, 0].exp() if m else None
        if unity is not None:
            dt[:, h:] *= unity
        log_decay = (dt * self.A_log.exp()).neg_()
        if site.log_carry is not None and h:
            carry = site.log_carry[:, 0].unsqueeze(-1).unbind(1)
            bounded = [carry[at] for at in self.boundary_of if at >= 0]  # these heads are the first
            log_decay[:, : len(bounded)] += torch.cat(bounded, 1)
        decay, written = log_decay.exp(), dt.unsqueeze(-1) * cast(x, wide)
        read = []
        if h:
            kept, entering = (decay[:, :h], written[:, :h]) if m else (decay, written)
            B, C = cast(B, wide).view(-1, 1, self.d_state, 1), cast(C, wide).view(-1, 1, self.d_state, 1)
            state.natural.mul_(kept.view(-1, h, 1, 1)).addcmul_(B, entering.view(-1, h, 1, self.d_head))
            read.append((state.natural * C).sum(2))
        if unity is not None:
            index = required(site.address)[:, :m, :, None].expand(-1, -1, -1, self.d_head)
            vector = torch.addcmul(written[:, h:], decay[:, h:, None], state.memory.gather(2, index)[:, :, 0])
            state.memory.scatter_(2, index, vector[:, :, None])
            read.append(vector * unity[..., None])
        joined = read[0] if len(read) == 1 else torch.cat(read, 1)
        y = torch.addcmul(cast(joined, x.dtype), cast(self.D, x.dtype).unsqueeze(-1), x).unsqueeze(1)
        kinds = self.natural | ({PatchType.MEMORY: m} if m else {})
        parts = y.split_with_sizes(list(kinds.values()), 2)
        sections = {kind: Section(part) for kind, part in zip(kinds, parts, strict=True)}
        return sections, DynamicsState(taps.narrow(1, 1, state.tail.shape[1]), state.natural, state.memory)

    def _convolve(self, x: Tensor, rows: Rows, tail: Tensor) -> Tensor:
        segment = None if rows.whole else rows.segment
        y = causal_convolution(x, self.conv_weight.to(x.dtype), self.conv_bias.to(x.dtype), segment, tail)
        return functional.silu(y)

    def _natural(
        self, x: Tensor, dt: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, site: Site, state: Tensor
    ) -> tuple[Float[Tensor, "B T H P"], Tensor]:
        log_decay = log_decay[..., : self.heads]
        if site.log_carry is not None:
            carry = functional.pad(site.log_carry, (0, 1))[..., self.boundary_of]
            log_decay = log_decay + carry * site.rows.valid[..., None]
        y, state = selective_scan(x, dt[..., : self.heads], log_decay, B, C, site.rows.start, state)
        return torch.addcmul(y.to(x.dtype), self.D[: self.heads, None].to(x.dtype), x), state

    def _memory(
        self, x: Tensor, dt: Tensor, log_decay: Tensor, site: Site, state: Tensor, carried: bool, keep_state: bool
    ) -> tuple[Float[Tensor, "B T h P"], Tensor]:
        """One vector per address. Step and reading are scaled by the partition of unity, so both vanish on a border."""
        address, unity = self._addresses(site), required(site.log_unity)[:, : self.memories].exp().transpose(1, 2)
        dt, log_decay = dt * unity, log_decay * unity
        y, state = _memory_scan(x, dt, log_decay, address, site.rows, state, carried, keep_state)
        y = unity[..., None] * y
        return torch.addcmul(y.to(x.dtype), self.D[self.heads :, None].to(x.dtype), x), state

    def _addresses(self, site: Site) -> Int[Tensor, "B h T"]:
        return required(site.address)[:, : self.memories]

    def _chain(self, site: Site, kind: PatchType, heads: int) -> Edges:
        """Edges to the previous position of the document; the weight is what a boundary lets through."""
        rows = site.rows
        exists = (rows.valid & ~rows.start & (rows.offset > 0))[:, :, None, None].expand(-1, -1, heads, 1)
        earlier = (torch.arange(exists.shape[1], device=exists.device) - 1)[None, :, None, None].expand_as(exists)
        weight = torch.ones(exists.shape, device=exists.device)
        column = dict(zip([k for k, n in self.natural.items() for _ in range(n)], self.boundary_of, strict=True))[kind]
        if site.log_carry is not None and column >= 0:
            weight = site.log_carry[..., column].exp()[:, :, None, None].expand_as(exists)
        return Edges.of(exists, earlier, weight)

    def _address_chain(self, site: Site) -> Edges:
        """Edges to the previous position of the same document and address."""
        key = _patch_keys(site.rows, self._addresses(site), self.num_addresses)
        order = torch.argsort(key, dim=-1, stable=True)
        ordered = key.gather(-1, order)
        previous = torch.full_like(order, -1)
        previous[..., 1:] = torch.where(ordered[..., 1:] == ordered[..., :-1], order[..., :-1], -1)
        earlier = torch.empty_like(previous).scatter(-1, order, previous).transpose(1, 2)[..., None]
        exists = (earlier >= 0) & site.rows.valid[:, :, None, None]
        return Edges.of(exists, earlier, torch.ones(exists.shape, device=exists.device))


def _last_taps(x: Float[Tensor, "B T D"], rows: Rows, tail: Float[Tensor, "B V D"]) -> Float[Tensor, "B V D"]:
    """The channels that the convolution will look back on, zero where they belong to another document."""
    count = tail.shape[1]
    documents = functional.pad(rows.segment, (count, 0))
    same = rows.final(documents, count) == rows.last_segment()[:, None]
    return rows.final(torch.cat([tail.to(x.dtype), x], 1), count) * same[..., None]


def _patch_keys(rows: Rows, address: Int[Tensor, "B h T"], num_addresses: int) -> Int[Tensor, "B h T"]:
    return rows.segment[:, None] * num_addresses + address


def _memory_scan(
    x: Float[Tensor, "B T h P"],
    dt: Float[Tensor, "B T h"],
    log_decay: Float[Tensor, "B T h"],
    address: Int[Tensor, "B h T"],
    rows: Rows,
    state: Float[Tensor, "B h K P"],
    carried: bool,
    keep_state: bool,
) -> tuple[Float[Tensor, "B T h P"], Float[Tensor, "B h K P"]]:
    """Scan along (document, address, position); carried vectors enter as first positions of their patches."""
    batch, length, heads, _ = x.shape
    num_addresses = state.shape[2]
    key = _patch_keys(rows, address, num_addresses)
    x, dt, log_decay = x.to(state.dtype).transpose(1, 2), dt.transpose(1, 2), log_decay.transpose(1, 2)
    if carried:
        key = torch.cat([torch.arange(num_addresses, device=key.device).expand(batch, heads, -1), key], -1)
        x, dt = torch.cat([state, x], 2), functional.pad(dt, (num_addresses, 0), value=1.0)
        log_decay = functional.pad(log_decay, (num_addresses, 0))
    order = torch.argsort(key, dim=-1, stable=True)
    ordered = key.gather(-1, order)
    start = run_starts(ordered).flatten(0, 1)
    x = take_along(x.flatten(0, 1), order.flatten(0, 1))[:, :, None]
    dt, log_decay = (tensor.gather(2, order).flatten(0, 1)[..., None] for tensor in (dt, log_decay))
    ones = x.new_ones(batch * heads, key.shape[-1], 1)
    y, _ = selective_scan(x, dt, log_decay, ones, ones, start)
    back = inverse_permutation(order)[..., -length:].flatten(0, 1)
    outputs = take_along(y[:, :, 0], back).unflatten(0, (batch, heads)).transpose(1, 2)
    if keep_state:
        wanted = rows.last_segment()[:, None, None] * num_addresses + torch.arange(num_addresses, device=key.device)
        wanted = wanted.expand(-1, heads, -1).contiguous()
        found = (torch.searchsorted(ordered, wanted, right=True) - 1).clamp(min=0)
        known = ordered.gather(-1, found) == wanted
        state = take_along(y[:, :, 0], found.flatten(0, 1)).unflatten(0, (batch, heads)) * known[..., None]
    return outputs, state
