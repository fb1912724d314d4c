"""The records that pass between the parts of a layer, and how to map a function over the tensors of one."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast, runtime_checkable

import torch

from sheafstate.ops.banded import take_along
from sheafstate.patches import PatchType
from sheafstate.shapes import Bool, Float, Int, Tensor

__all__ = [
    "Edges",
    "Initialized",
    "Rows",
    "Section",
    "Sections",
    "Site",
    "map_tensors",
    "replace_tensors",
    "required",
    "split_channels",
    "spread_index",
    "tensors_of",
]

Record = TypeVar("Record")
Field = TypeVar("Field")


@runtime_checkable
class Initialized(Protocol):
    """A module that states its initial values."""

    def initial_values(self) -> dict[str, Tensor]:
        """Values of the module's own parameters and buffers at initialisation, by name."""


def map_tensors(function: Callable[[Tensor], Tensor], record: Record) -> Record:
    """A copy of a record with the function applied to every tensor in it, through nested records, tuples and lists."""
    if isinstance(record, torch.Tensor):
        return cast(Record, function(record))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        changed = {
            field.name: map_tensors(function, getattr(record, field.name)) for field in dataclasses.fields(record)
        }
        return dataclasses.replace(record, **changed)
    if isinstance(record, (tuple, list)):
        return type(record)(map_tensors(function, item) for item in record)
    return record


def tensors_of(record: object) -> list[Tensor]:
    """The tensors of a record, in the order of its fields."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, record)
    return found


def replace_tensors(record: Record, tensors: Sequence[Tensor]) -> Record:
    """A copy of a record that holds other tensors, given in the order of :func:`tensors_of`."""
    new = iter(tensors)
    return map_tensors(lambda _: next(new), record)


def required(field: Field | None) -> Field:
    """An optional field of a record, where its maker promises it: the address of a site that has address maps, say."""
    if field is None:
        raise TypeError("a record lacks a field that this layer's configuration promises")
    return field


def spread_index(index: Int[Tensor, "R n"], like: Tensor) -> Tensor:
    """An index into axis 1 of a (R, m, ...) tensor, in the shape that ``gather`` and ``scatter`` want."""
    return index.reshape(*index.shape, *(1,) * (like.dim() - 2)).expand(*index.shape, *like.shape[2:])


@dataclass(frozen=True)
class Rows:
    """Which positions of compacted rows exist, and which document each belongs to.

    Attributes:
        segment: number of the document, counted from the state that came in: 0 continues it, (B, T). Past a row's end
            it repeats the last one.
        start: whether a document starts here.
        offset: position inside its document, counted over earlier calls.
        valid: whether the position exists; a row's unmasked positions come first.
        length: unmasked positions of every row, (B,).
        settled: ``None`` but in a step of decoding: one position a row, each of which exists and begins no document,
            read without gradients, so that a part may write into the state it was given. Then it is the least offset
            of the rows, or 0 where nobody may look.
        whole: whether nothing says that a document begins inside a row.
    """

    segment: Int[Tensor, "B T"]
    start: Bool[Tensor, "B T"]
    offset: Int[Tensor, "B T"]
    valid: Bool[Tensor, "B T"]
    length: Int[Tensor, " B"]
    settled: int | None = None
    whole: bool = False

    @property
    def is_step(self) -> bool:
        """Whether this is a step of decoding."""
        return self.settled is not None

    def piece(self, begin: int, end: int) -> "Rows":
        """Some of the columns, to be read from the state that those before them leave."""
        segment = self.segment[:, begin:end]
        if begin:
            segment = segment - self.segment[:, begin - 1 : begin]
        length = (self.length - begin).clamp(0, end - begin)
        start, offset, valid = (tensor[:, begin:end] for tensor in (self.start, self.offset, self.valid))
        return Rows(segment, start, offset, valid, length, None, self.whole)

    def last_segment(self) -> Int[Tensor, " B"]:
        """The document that each row ends in."""
        return self.segment[:, -1]

    def final(self, values: Tensor, count: int) -> Tensor:
        """The last ``count`` positions of each row of ``values`` (B, count + T, ...); its first ``count`` are older."""
        return take_along(values, self.length[:, None] + torch.arange(count, device=values.device))


@dataclass(frozen=True)
class Site:
    """A layer's site: written once from h, read-only afterwards. Fields of types that are not in use are ``None``.

    Attributes:
        rows: the rows.
        vectors: unit vectors z of every address map.
        address: their addresses.
        log_unity: log max(u, 1e-12), u the partition of unity; no gradient.
        log_carry: log (1 - b) of every interval type in use, b its boundary.
        log_write: log-licence with which each retrieval head writes a position, minus infinity where it does not;
            ``None`` where every position is written.
        log_anchor: log-licence with which each instruction head makes a position an anchor, likewise.
    """

    rows: Rows
    vectors: Float[Tensor, "B M T a"] | None = None
    address: Int[Tensor, "B M T"] | None = None
    log_unity: Float[Tensor, "B M T"] | None = None
    log_carry: Float[Tensor, "B T I"] | None = None
    log_write: Float[Tensor, "B W T"] | None = None
    log_anchor: Float[Tensor, "B Z T"] | None = None


@dataclass(frozen=True)
class Edges:
    """Relations used: position ``later`` of ``row`` read ``earlier`` in head ``head`` of its type, this strongly."""

    row: Int[Tensor, " n"]
    later: Int[Tensor, " n"]
    earlier: Int[Tensor, " n"]
    head: Int[Tensor, " n"]
    weight: Float[Tensor, " n"]

    @staticmethod
    def of(
        exists: Bool[Tensor, "B T h r"], earlier: Int[Tensor, "B T h r"], weight: Float[Tensor, "B T h r"]
    ) -> "Edges":
        """Edges from a table of what each position reads; self-edges are no relations and are left out."""
        later = torch.arange(exists.shape[1], device=exists.device)[None, :, None, None]
        row, position, head, column = (exists & (earlier != later)).nonzero(as_tuple=True)
        chosen = row, position, head, column
        return Edges(row, position, earlier[chosen], head, weight[chosen].detach())

    @staticmethod
    def concatenate(parts: Sequence["Edges"]) -> "Edges":
        """The relations of several lists, one after the other."""
        names = [field.name for field in dataclasses.fields(Edges)]
        return Edges(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True)
class Section:
    """The sections of one type's heads.

    Attributes:
        values: one vector per head and position.
        mass: 1 - (weight on null), or ``None`` where it is 1.
        edges: the relations used, where they were asked for.
    """

    values: Float[Tensor, "B T h P"]
    mass: Float[Tensor, "B T h"] | None = None
    edges: Edges | None = None


Sections = dict[PatchType, Section]
"""The sections of a layer by type, in the order of the configuration's covers."""


def split_channels(layout: dict[str, int], tensor: Tensor) -> dict[str, Tensor]:
    """Split the last axis into named channels."""
    return dict(zip(layout, tensor.split_with_sizes(list(layout.values()), -1), strict=True))
