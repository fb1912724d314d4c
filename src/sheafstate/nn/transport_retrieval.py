"""The retrieval cover: a query reads the last r written positions of the same document and learned address.

What it reads of a position p is, at first, the value of p + 1: what followed the last time. An entry therefore stays
pending until the next position of its document completes it. Source: DESIGN §3, Addresses.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site, required
from sheafstate.ops import without_autocast
from sheafstate.ops.banded import band_pairs, banded_softmax, join_softmax, run_starts, take_along, written_slots
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = ["RetrievalReader", "RetrievalState"]

INITIAL_LOG_SCALE = 2.0794415416798357
"""log 8: the sharpness of the match of two address vectors at first."""


@dataclass(frozen=True)
class RetrievalState:
    """Buckets of r slots per address (slot = count mod r), and the entry that waits for its value.

    Attributes:
        vectors, values, log_weight: contents of the slots; log-weight minus infinity where a slot is empty.
        count: entries ever pushed to a bucket of this document.
        pending_vectors, pending_values, pending_weight, pending_address: the last position's entry.
    """

    vectors: Float[Tensor, "B H K r a"]
    values: Float[Tensor, "B H K r P"]
    log_weight: Float[Tensor, "B H K r"]
    count: Int[Tensor, "B H K"]
    pending_vectors: Float[Tensor, "B H a"]
    pending_values: Float[Tensor, "B H P"]
    pending_weight: Float[Tensor, "B H"]
    pending_address: Int[Tensor, "B H"]


@dataclass(frozen=True)
class _Entries:
    """What could be read: carried slots, the pending entry, then the new positions; oldest first within a bucket."""

    vectors: Float[Tensor, "B H n a"]
    values: Float[Tensor, "B H n P"]
    log_weight: Float[Tensor, "B H n"]
    address: Int[Tensor, "B H n"]
    segment: Int[Tensor, "B n"]


class RetrievalReader(nn.Module):
    """Softmax over a bucket, with a null entry, the partition of unity and the write licence."""

    def __init__(self, config: SheafStateConfig, heads: int) -> None:
        super().__init__()
        self.heads, self.d_head, self.d_address = heads, config.d_head, config.d_address
        self.degree, self.num_addresses = config.retrieval_degree, config.num_addresses
        self.width = heads * config.d_head
        self.log_scale = nn.Parameter(torch.empty(heads))
        self.null = nn.Parameter(torch.empty(heads))
        self.shift = nn.Parameter(torch.empty(heads, config.d_head))

    def initial_values(self) -> dict[str, Tensor]:
        """Sharpness 8, a null logit of 0, values that are wholly the next position's."""
        return {
            "log_scale": torch.full((self.heads,), INITIAL_LOG_SCALE),
            "null": torch.zeros(self.heads),
            "shift": torch.ones(self.heads, self.d_head),
        }

    def initial_state(self, batch: int, like: Tensor) -> RetrievalState:
        """Empty buckets, nothing pending."""
        wide = torch.promote_types(like.dtype, torch.float32)
        h, k, r = self.heads, self.num_addresses, self.degree
        return RetrievalState(
            like.new_zeros(batch, h, k, r, self.d_address, dtype=wide),
            like.new_zeros(batch, h, k, r, self.d_head),
            like.new_full((batch, h, k, r), -torch.inf, dtype=wide),
            torch.zeros(batch, h, k, dtype=torch.long, device=like.device),
            like.new_zeros(batch, h, self.d_address, dtype=wide),
            like.new_zeros(batch, h, self.d_head),
            like.new_full((batch, h), -torch.inf, dtype=wide),
            torch.zeros(batch, h, dtype=torch.long, device=like.device),
        )

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: RetrievalState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, RetrievalState | None]:
        """Read the bucket of every position."""
        v = x.unflatten(-1, (self.heads, self.d_head)).transpose(1, 2)
        h = self.heads
        vectors, address = required(site.vectors)[:, :h], required(site.address)[:, :h]
        unity = required(site.log_unity)[:, :h]
        weight = unity + required(site.log_write)
        if state is not None and site.rows.is_step:
            return self._step(v, vectors, address, unity, weight, state)
        entries = self._entries(v, vectors, address, weight, site.rows, state)
        section, written = self._read(entries, unity, site.rows, with_edges)
        kept = self._keep(entries, written, v, vectors, address, weight, site.rows, state) if keep_state else None
        return section, kept

    def _blend(self, following: Tensor, own: Tensor) -> Tensor:
        """mu * v_{p+1} + (1 - mu) * v_p; the head's axis is the second."""
        shift = self.shift.to(own.dtype).reshape(self.heads, *(1,) * (own.dim() - 3), self.d_head)
        return shift * following + (1 - shift) * own

    def _entries(
        self, v: Tensor, vectors: Tensor, address: Tensor, weight: Tensor, rows: Rows, state: RetrievalState | None
    ) -> _Entries:
        following = torch.cat([v[:, :, 1:], v[:, :, -1:]], 2)
        values, segment = self._blend(following, v), rows.segment
        if state is None:
            return _Entries(vectors, values, weight, address, segment)
        slots = torch.arange(self.degree, device=v.device)
        # bucket slots by age: the oldest of a full ring is where the next entry would go
        oldest = torch.where(state.count >= self.degree, state.count % self.degree, 0)
        by_age = (oldest[..., None] + slots) % self.degree
        ring = [state.log_weight.gather(-1, by_age).flatten(2)]
        for tensor in (state.vectors, state.values):
            ring.append(tensor.gather(3, by_age[..., None].expand_as(tensor)).flatten(2, 3))
        bucket = torch.arange(self.num_addresses, device=v.device).repeat_interleave(self.degree)
        completed = self._blend(v[:, :, 0], state.pending_values.to(v.dtype))
        return _Entries(
            torch.cat([ring[1].to(vectors.dtype), state.pending_vectors[:, :, None].to(vectors.dtype), vectors], 2),
            torch.cat([ring[2].to(v.dtype), completed[:, :, None], values], 2),
            torch.cat([ring[0], state.pending_weight[..., None], weight], 2),
            torch.cat([bucket.expand(*address.shape[:2], -1), state.pending_address[..., None], address], 2),
            torch.nn.functional.pad(segment, (bucket.numel() + 1, 0)),
        )

    def _read(
        self, entries: _Entries, unity: Tensor, rows: Rows, with_edges: bool
    ) -> tuple[Section, Bool[Tensor, "B H n"]]:
        batch, heads, total = entries.address.shape
        length = unity.shape[2]
        position = torch.arange(total, device=unity.device) - (total - length)
        # the last position of a row waits for its value, and no position of this call comes after it
        written = (entries.log_weight > -torch.inf) & (position != rows.length[:, None] - 1)[:, None]
        key = (entries.segment[:, None] * self.num_addresses + entries.address).flatten(0, 1)
        order = torch.argsort(key, dim=-1, stable=True)
        slots, stop, first = written_slots(written.flatten(0, 1).gather(-1, order), key.gather(-1, order), False)
        source = order.gather(-1, slots)
        vectors = entries.vectors.flatten(0, 1)
        scale = self.log_scale.exp().to(vectors.dtype).repeat(batch)[:, None, None]
        output, normaliser, weights = banded_softmax(
            take_along(vectors, order) * scale,
            take_along(vectors, source),
            take_along(entries.values.flatten(0, 1), source),
            stop,
            first,
            self.degree,
            entries.log_weight.masked_fill(~written, 0.0).flatten(0, 1).gather(-1, source),
            return_weights=with_edges,
        )
        back = torch.argsort(order, -1)[:, -length:]
        section, mass, shares = self._join(take_along(output, back), normaliser.gather(-1, back), unity)
        edges = None
        if weights is not None:
            slot, exists = band_pairs(stop, first, self.degree)
            earlier = source.gather(1, slot.clamp(min=0).flatten(1)).unflatten(1, slot.shape[1:])
            tables = [take_along(t, back) for t in (exists, earlier, weights)]
            exists, earlier, weights = (t.unflatten(0, (batch, heads)).transpose(1, 2) for t in tables)
            exists = exists & rows.valid[..., None, None]
            edges = Edges.of(exists, earlier, weights * shares.transpose(1, 2)[..., None])
        return Section(section.transpose(1, 2), mass.transpose(1, 2), edges), written

    def _join(self, output: Tensor, normaliser: Tensor, unity: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Join the bucket (less the query's own log-unity) with the null entry."""
        batch = unity.shape[0]
        normaliser = normaliser + unity.flatten(0, 1)
        null = self.null.to(normaliser.dtype).repeat(batch)[:, None].expand_as(normaliser)
        section, mass, shares = join_softmax([(output, normaliser)], null)
        section, mass, share = (t.unflatten(0, (batch, self.heads)) for t in (section, mass, shares[0]))
        return section, mass, share

    def _keep(
        self,
        entries: _Entries,
        written: Bool[Tensor, "B H n"],
        v: Tensor,
        vectors: Tensor,
        address: Tensor,
        weight: Tensor,
        rows: Rows,
        state: RetrievalState | None,
    ) -> RetrievalState:
        """The last r entries of every bucket of the document that the row ends in, and the pending entry."""
        last = rows.last_segment()
        empty = self.initial_state(v.shape[0], v) if state is None else state
        current = written & (entries.segment == last[:, None])[:, None]
        index, capacity = entries.address, self.num_addresses
        found = torch.zeros_like(empty.count).scatter_add(-1, index, current.long())
        held = empty.count.clamp(max=self.degree)
        evicted = torch.where((last == 0)[:, None, None], empty.count - held, 0)
        rank = _rank_in_bucket(index, current, capacity)
        newest = current & (rank >= found.gather(-1, index) - self.degree)
        slot = (evicted.gather(-1, index) + rank) % self.degree
        target = torch.where(newest, index * self.degree + slot, capacity * self.degree)

        def place(blank: Tensor, source: Tensor) -> Tensor:
            extra = blank.shape[4:]
            flat = torch.cat([blank.flatten(2, 3), blank.new_zeros(*blank.shape[:2], 1, *extra)], 2)
            where = target.reshape(*target.shape, *(1,) * len(extra)).expand(*target.shape, *extra)
            return flat.scatter(2, where, source.to(blank.dtype))[:, :, :-1].reshape(blank.shape)

        at = (rows.length - 1).clamp(min=0)[:, None, None]
        pending = [_at(vectors, at), _at(v, at), weight.gather(2, at.expand(-1, self.heads, 1))[..., 0]]
        pending.append(address.gather(2, at.expand(-1, self.heads, 1))[..., 0])
        names = ("pending_vectors", "pending_values", "pending_weight", "pending_address")
        some = rows.length > 0
        waiting = {}
        for name, latest in zip(names, pending, strict=True):
            old = getattr(empty, name)
            waiting[name] = torch.where(some.reshape(-1, *(1,) * (old.dim() - 1)), latest.to(old.dtype), old)
        new = RetrievalState(
            place(torch.zeros_like(empty.vectors), entries.vectors),
            place(torch.zeros_like(empty.values), entries.values),
            place(torch.full_like(empty.log_weight, -torch.inf), entries.log_weight),
            evicted + found,
            **waiting,
        )
        return new if state is None else _choose(some, new, state)

    def _step(
        self,
        v: Float[Tensor, "B H one P"],
        vectors: Float[Tensor, "B H one a"],
        address: Int[Tensor, "B H one"],
        unity: Float[Tensor, "B H one"],
        weight: Float[Tensor, "B H one"],
        state: RetrievalState,
    ) -> tuple[Section, RetrievalState]:
        """One position: complete and push the pending entry, read the bucket, become pending. Writes into the state."""
        pending, dtype = state.pending_weight[..., None], state.values.dtype
        pushes = pending > -torch.inf
        bucket = state.pending_address[..., None]
        place = torch.add(state.count.gather(-1, bucket) % self.degree, bucket, alpha=self.degree)
        completed = torch.lerp(state.pending_values, v[:, :, 0].to(dtype), self.shift.to(dtype))
        for ring, entry in (
            (state.vectors.flatten(2, 3), state.pending_vectors),
            (state.values.flatten(2, 3), completed),
            (state.log_weight.flatten(2, 3)[..., None], pending),
        ):
            where = place[..., None].expand(-1, -1, 1, ring.shape[-1])
            ring.scatter_(2, where, torch.where(pushes[..., None], entry[:, :, None], ring.gather(2, where)))
        state.count.scatter_add_(-1, bucket, pushes.long())
        here, r = address[..., None], self.degree
        keys = state.vectors.gather(2, here[..., None].expand(-1, -1, -1, r, self.d_address))[:, :, 0]
        values = state.values.gather(2, here[..., None].expand(-1, -1, -1, r, self.d_head))[:, :, 0]
        bias = state.log_weight.gather(2, here.expand(-1, -1, -1, r))[:, :, 0]
        with without_autocast(v):
            match = (keys @ vectors[:, :, 0, :, None].to(keys.dtype))[..., 0]
            logits = torch.addcmul(bias + unity, match, self.log_scale.exp()[:, None].to(match.dtype))
            null = self.null.to(logits.dtype)[:, None].expand(*logits.shape[:2], 1)
            shares = torch.cat([logits, null], -1).softmax(-1)[..., :-1]
            section = (shares[:, :, None].to(dtype) @ values).transpose(1, 2).to(v.dtype)
        new = replace(
            state,
            pending_vectors=vectors[:, :, 0].to(state.pending_vectors.dtype),
            pending_values=v[:, :, 0].to(dtype),
            pending_weight=weight[:, :, 0],
            pending_address=address[:, :, 0],
        )
        return Section(section, shares.sum(-1)[:, None]), new


def _at(tensor: Float[Tensor, "B H T d"], index: Int[Tensor, "B one one2"]) -> Float[Tensor, "B H d"]:
    return tensor.gather(2, index[..., None].expand(-1, tensor.shape[1], 1, tensor.shape[3]))[:, :, 0]


def _rank_in_bucket(
    bucket: Int[Tensor, "B H n"], counted: Bool[Tensor, "B H n"], capacity: int
) -> Int[Tensor, "B H n"]:
    """How many counted entries of the same bucket came before, for every entry."""
    key = torch.where(counted, bucket, capacity)
    order = torch.argsort(key, dim=-1, stable=True)
    ordered = key.gather(-1, order)
    position = torch.arange(key.shape[-1], device=key.device).expand_as(key)
    first = torch.where(run_starts(ordered), position, 0).cummax(-1).values
    return torch.empty_like(key).scatter(-1, order, position - first)


def _choose(some: Bool[Tensor, " B"], new: RetrievalState, old: RetrievalState) -> RetrievalState:
    """The new state where a row had positions, else the old one."""
    chosen = {}
    for name in RetrievalState.__dataclass_fields__:
        a, b = getattr(new, name), getattr(old, name)
        chosen[name] = torch.where(some.reshape(-1, *(1,) * (a.dim() - 1)), a, b)
    return RetrievalState(**chosen)
