"""The retrieval cover: a query reads the last r written positions of the same document and address.

What it reads of a position p is, at first, the value of p + 1: what followed the last time. An entry therefore stays
pending until the next position of its document completes it. Source: DESIGN §3, Addresses.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.nn.records import Edges, Rows, Section, Site, required
from sheafstate.ops import cast, constant, made_once, without_autocast
from sheafstate.ops.banded import (
    band_pairs,
    banded_softmax,
    inverse_permutation,
    join_softmax,
    run_starts,
    take_along,
    written_slots,
)
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = ["RetrievalReader", "RetrievalState"]

INITIAL_LOG_SCALE = 2.0794415416798357
"""log 8: the sharpness of the match of two address vectors at first."""


@dataclass(frozen=True)
class RetrievalState:
    """Buckets of r slots, one after the other (slot = count mod r), and behind them a spare slot that nobody reads.

    The last position's entry stands in its slot and lacks the next position's share of its value. What is not written
    goes to the spare slot.

    Attributes:
        keys: address vectors, each with its log-weight behind it; minus infinity where a slot is empty; n is K r + 1,
            b is a + 1.
        values: values of the slots.
        count: entries ever pushed to a bucket of this document.
        pending: slot of the last position's entry.
    """

    keys: Float[Tensor, "B H n b"]
    values: Float[Tensor, "B H n P"]
    count: Int[Tensor, "B H K"]
    pending: Int[Tensor, "B H"]


@dataclass(frozen=True)
class _Entries:
    """What could be read: carried slots, then the new positions; oldest first within a bucket."""

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
        self.width, self.with_mass = heads * config.d_head, config.gluing == "sheaf"
        self.log_scale = nn.Parameter(torch.empty(heads))
        self.null = nn.Parameter(torch.empty(heads))
        self.shift = nn.Parameter(torch.empty(heads, config.d_head))
        self.slope = nn.Parameter(torch.empty(heads)) if config.retrieval_recency else None

    def initial_values(self) -> dict[str, Tensor]:
        """Sharpness 8, a null logit of 0, values that are wholly the next position's; an entry k old counts 1/k."""
        recency = {} if self.slope is None else {"slope": torch.ones(self.heads)}
        return recency | {
            "log_scale": torch.full((self.heads,), INITIAL_LOG_SCALE),
            "null": torch.zeros(self.heads),
            "shift": torch.ones(self.heads, self.d_head),
        }

    def initial_state(self, batch: int, like: Tensor) -> RetrievalState:
        """Empty buckets, nothing pending."""
        wide = torch.promote_types(like.dtype, torch.float32)
        slots = self.num_addresses * self.degree + 1
        keys = like.new_zeros(batch, self.heads, slots, self.d_address + 1, dtype=wide)
        keys[..., -1] = -torch.inf
        return RetrievalState(
            keys,
            like.new_zeros(batch, self.heads, slots, self.d_head),
            torch.zeros(batch, self.heads, self.num_addresses, dtype=torch.long, device=like.device),
            torch.full((batch, self.heads), slots - 1, dtype=torch.long, device=like.device),
        )

    def forward(
        self, x: Float[Tensor, "B T C"], site: Site, state: RetrievalState | None, keep_state: bool, with_edges: bool
    ) -> tuple[Section, RetrievalState | None]:
        """Read the bucket of every position."""
        h = self.heads
        vectors, address, unity = required(site.vectors), required(site.address), required(site.log_unity)
        if vectors.shape[1] > h:
            vectors, address, unity = vectors[:, :h], address[:, :h], unity[:, :h]
        weight = unity if site.log_write is None else unity + site.log_write
        if state is not None and site.rows.is_step:
            return self._step(x.reshape(-1, h, self.d_head), vectors, address, unity, weight, state)
        v = x.unflatten(-1, (h, self.d_head)).transpose(1, 2)
        weight = weight.masked_fill(~site.rows.valid[:, None], -torch.inf)
        entries = self._entries(v, vectors, address, weight, site.rows, state)
        section, written = self._read(entries, unity, site.rows, with_edges)
        kept = self._keep(entries, written, site.rows, state) if keep_state else None
        return section, kept

    def _log_ages(
        self, count: Int[Tensor, "B H K"], address: Int[Tensor, "B H one"], dtype: torch.dtype
    ) -> Float[Tensor, "B H r"]:
        """Logarithms of how many entries ago each slot of the position's bucket was written; the newest is 1 ago."""
        slots = torch.arange(self.degree, device=count.device)
        return ((count.gather(-1, address) - 1 - slots) % self.degree + 1).to(dtype).log()

    def _shares(self, like: Tensor) -> Tensor:
        """mu: what of an entry's value is the next position's; (H, 1, P)."""
        return self.shift.to(like.dtype)[:, None]

    def _entries(
        self, v: Tensor, vectors: Tensor, address: Tensor, weight: Tensor, rows: Rows, state: RetrievalState | None
    ) -> _Entries:
        # mu v_{p+1} + (1 - mu) v_p; the last position of a row has its own share alone
        existing = v.masked_fill(~rows.valid[:, None, :, None], 0.0)
        values = torch.lerp(v, functional.pad(existing[:, :, 1:], (0, 0, 0, 1)), self._shares(v))
        if state is None:
            return _Entries(vectors, values, weight, address, rows.segment)
        bucket = torch.arange(self.num_addresses, device=v.device)[:, None].expand(-1, self.degree)
        # slots by age: the oldest of a full bucket is where the next entry would go
        oldest = torch.where(state.count >= self.degree, state.count % self.degree, 0)
        by_age = (oldest[..., None] + torch.arange(self.degree, device=v.device)) % self.degree
        by_age = (by_age + bucket * self.degree).flatten(2)
        keys = _take(state.keys, by_age).to(vectors.dtype)
        completed = _take(self._complete(state, v), by_age).to(v.dtype)
        return _Entries(
            torch.cat([keys[..., :-1], vectors], 2),
            torch.cat([completed, values], 2),
            torch.cat([keys[..., -1].to(weight.dtype), weight], 2),
            torch.cat([bucket.flatten().expand(*address.shape[:2], -1), address], 2),
            functional.pad(rows.segment, (bucket.numel(), 0)),
        )

    def _complete(self, state: RetrievalState, v: Float[Tensor, "B H T P"]) -> Float[Tensor, "B H n P"]:
        """Values of the slots once the first of the new positions has given its share to the entry that waits."""
        share = (self._shares(v) * v[:, :, :1]).to(state.values.dtype)
        return state.values.scatter_add(2, _along(state.pending[..., None], state.values), share)

    def _read(
        self, entries: _Entries, unity: Tensor, rows: Rows, with_edges: bool
    ) -> tuple[Section, Bool[Tensor, "B H n"]]:
        batch, heads, _ = entries.address.shape
        length = unity.shape[2]
        written = entries.log_weight > -torch.inf
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
            slope=None if self.slope is None else self.slope.repeat(batch),
            return_weights=with_edges,
        )
        back = inverse_permutation(order)[:, -length:]
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
        self, entries: _Entries, written: Bool[Tensor, "B H n"], rows: Rows, state: RetrievalState | None
    ) -> RetrievalState:
        """The last r entries of every bucket of the document that the row ends in."""
        last = rows.last_segment()
        empty = self.initial_state(len(last), entries.values) if state is None else state
        current = written & (entries.segment == last[:, None])[:, None]
        index, capacity = entries.address, self.num_addresses
        found = torch.zeros_like(empty.count).scatter_add(-1, index, current.long())
        held = empty.count.clamp(max=self.degree)
        evicted = torch.where((last == 0)[:, None, None], empty.count - held, 0)
        rank = _rank_in_bucket(index, current, capacity)
        newest = current & (rank >= found.gather(-1, index) - self.degree)
        slot = (evicted.gather(-1, index) + rank) % self.degree
        place = torch.where(newest, index * self.degree + slot, capacity * self.degree)
        blank = self.initial_state(len(last), entries.values)
        keys = torch.cat([entries.vectors, entries.log_weight[..., None]], -1)
        at = (index.shape[-1] - rows.valid.shape[1] + rows.length - 1).clamp(min=0)[:, None, None]
        new = RetrievalState(
            _put(blank.keys, place, keys),
            _put(blank.values, place, entries.values),
            evicted + found,
            place.gather(2, at.expand(-1, self.heads, 1))[..., 0],
        )
        return new if state is None else _choose(rows.length > 0, new, state)

    def _step(
        self,
        v: Float[Tensor, "B H P"],
        vectors: Float[Tensor, "B H one a"],
        address: Int[Tensor, "B H one"],
        unity: Float[Tensor, "B H one"],
        weight: Float[Tensor, "B H one"],
        state: RetrievalState,
    ) -> tuple[Section, RetrievalState]:
        """One position: complete the entry that waits, read the bucket, take a slot. Writes into the state.

        Slots of all rows and heads are numbered through, so that one index serves all of them.
        """
        keys, values = (tensor.view(-1, tensor.shape[3]) for tensor in (state.keys, state.values))
        r, (batch, heads, count, _) = self.degree, state.keys.shape
        begin, buckets = _numbers(batch, heads, count, r, v.device)
        given = cast(self.shift, v.dtype) * v
        waiting = (begin + state.pending).view(-1)
        values.index_put_((waiting,), cast(given, values.dtype).view(-1, self.d_head), accumulate=True)
        slots = torch.add(buckets, address, alpha=r).view(-1)
        read = keys.index_select(0, slots).view(-1, r, keys.shape[1])
        with without_autocast(v):
            query = (cast(vectors, read.dtype) * self.log_scale.exp().view(-1, 1, 1)).view(len(read), -1, 1)
            known, logit = read.split_with_sizes([self.d_address, 1], -1)
            match = torch.baddbmm(logit, known, query).view(*unity.shape[:2], r)
            if self.slope is not None:
                match = match - self.slope.to(match.dtype)[:, None] * self._log_ages(state.count, address, match.dtype)
            # the own log-unity, which all of the bucket have, is taken from the null entry instead
            null = cast(self.null, unity.dtype).unsqueeze(-1) - unity
            shares = torch.cat([match, null], -1).softmax(-1).narrow(-1, 0, r)
            bag = values.index_select(0, slots).view(-1, r, self.d_head)
            section = (bag * cast(shares, bag.dtype).reshape(-1, r, 1)).sum(1)
        mass = shares.sum(-1).unsqueeze(1) if self.with_mass else None
        place = torch.add(state.count.gather(-1, address) % r, address, alpha=r)
        if weight is unity:  # there are no licences: everything is written
            state.count.scatter_add_(-1, address, constant(1, address.dtype, v.device).expand_as(address))
        else:
            written = weight > -torch.inf
            place = torch.where(written, place, state.keys.shape[2] - 1)
            state.count.scatter_add_(-1, address, written.long())
        place = place[..., 0]
        slot, entry = (begin + place).view(-1), torch.cat([vectors, weight.unsqueeze(-1)], -1)
        keys.index_copy_(0, slot, cast(entry, keys.dtype).view(-1, keys.shape[1]))
        values.index_copy_(0, slot, cast(v - given, values.dtype).view(-1, self.d_head))
        section = cast(section, v.dtype).view(len(v), 1, self.heads, self.d_head)
        return Section(section, mass), RetrievalState(state.keys, state.values, state.count, place)


@made_once
def _numbers(
    batch: int, heads: int, slots: int, degree: int, device: torch.device
) -> tuple[Int[Tensor, "B H"], Int[Tensor, "B H r"]]:
    """Number of the first slot, and of those of the first bucket, of every row and head; made once."""
    begin = torch.arange(0, batch * heads * slots, slots, device=device).view(batch, heads)
    return begin, begin[..., None] + torch.arange(degree, device=device)


def _along(index: Int[Tensor, "B H m"], like: Float[Tensor, "B H n d"]) -> Int[Tensor, "B H m d"]:
    """An index into the third axis, for ``gather`` and ``scatter``."""
    return index[..., None].expand(-1, -1, -1, like.shape[3])


def _take(tensor: Float[Tensor, "B H n d"], index: Int[Tensor, "B H m"]) -> Float[Tensor, "B H m d"]:
    return tensor.gather(2, _along(index, tensor))


def _put(
    blank: Float[Tensor, "B H n d"], place: Int[Tensor, "B H m"], source: Float[Tensor, "B H m d"]
) -> Float[Tensor, "B H n d"]:
    """The source in its places; the last, which many may share, stays blank."""
    placed = blank.scatter(2, _along(place, source), source.to(blank.dtype))
    return torch.cat([placed[:, :, :-1], blank[:, :, -1:]], 2)


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
