r"""Typed edge lists, and how well one relation holds another: coverage and waste.

An edge is a pair (later, earlier) of distinct positions with a type; a self-edge is no relation. For a site S and a
true dependency graph G*, both read as sets of pairs,

    coverage(S, G*) = \|S ∩ G*\| / \|G*\|          the share of the true edges that the site holds
    waste(S, G*)    = 1 − \|S ∩ G*\| / \|S\|        the share of the site's edges that are not true

Both are ``nan`` where the denominator is 0. The same pair under two types, or in two heads, counts once, except where
a function says "by type". Complete and windowed sites are ``Band``s: counted, never materialised. The simulation, the
model (``output_site=True``), the diagnosis and the viewer all speak in these records. Source: DESIGN §2 and §6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sheafstate.errors import InputError

__all__ = [
    "Band",
    "EdgeList",
    "Site",
    "concatenate",
    "coverage",
    "coverage_by_type",
    "degrees",
    "distinct",
    "edges_by_type",
    "edges_per_token",
    "num_edges",
    "num_shared",
    "waste",
    "waste_by_type",
]

MAX_TYPES = np.iinfo(np.int8).max


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Typed edges over ``length`` positions; the arrays become read-only views in the types below.

    Attributes:
        later: int64 ``(n,)``, the position t that reads.
        earlier: int64 ``(n,)``, the position p < t that is read.
        types: int8 ``(n,)``, codes into ``names``.
        names: the types' names.
        length: number of positions; every position is below it.
        heads: int16 ``(n,)``, which head used the edge, or ``None``.
        weights: float32 ``(n,)``, how strongly, or ``None``.

    Raises:
        InputError: for arrays of unequal length, a position or a type out of range, or an edge that does not go back.
    """

    later: NDArray[np.int64]
    earlier: NDArray[np.int64]
    types: NDArray[np.int8]
    names: tuple[str, ...]
    length: int
    heads: NDArray[np.int16] | None = None
    weights: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names) or len(self.names) > MAX_TYPES:
            raise InputError(f"edge types need at most {MAX_TYPES} different names, got {self.names}")
        columns = {"later": np.int64, "earlier": np.int64, "types": np.int8, "heads": np.int16, "weights": np.float32}
        for column, dtype in columns.items():
            value = getattr(self, column)
            if value is not None:
                object.__setattr__(self, column, _read_only(value, dtype, column))
        sizes = {c: len(v) for c in columns if (v := getattr(self, c)) is not None}
        if len(set(sizes.values())) > 1:
            raise InputError(f"an edge list's arrays must have one length, got {sizes}")
        if len(self.later) == 0:
            return
        if self.earlier.min() < 0 or self.later.max() >= self.length:
            raise InputError(f"edges must join positions 0 to {self.length - 1}")
        if not np.all(self.earlier < self.later):
            raise InputError("an edge must go from a position to an earlier one")
        if self.types.min() < 0 or self.types.max() >= len(self.names):
            raise InputError(f"edge types must be codes 0 to {len(self.names) - 1}")

    def __len__(self) -> int:
        return len(self.later)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The distinct pairs as sorted keys later·length + earlier, int64 ``(pairs,)``, read-only; made once."""
        keys = self.later * self.length + self.earlier
        # Lists are made of runs that are in order already; a stable sort merges these instead of starting anew.
        keys.sort(kind="stable")
        new = keys[1:] > keys[:-1]
        if not np.all(new):
            keys = keys[np.concatenate(([True], new))]
        keys.flags.writeable = False
        return keys

    def select(self, index: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "EdgeList":
        """The edges that a mask ``(n,)``, an index array or a slice picks."""
        return EdgeList(
            self.later[index],
            self.earlier[index],
            self.types[index],
            self.names,
            self.length,
            None if self.heads is None else self.heads[index],
            None if self.weights is None else self.weights[index],
        )

    def of_type(self, name: str) -> "EdgeList":
        """The edges of one type.

        Raises:
            InputError: if there is no such type.
        """
        if name not in self.names:
            raise InputError(f"no edge type {name!r}; the types are {', '.join(self.names)}")
        return self.select(self.types == self.names.index(name))

    def beyond(self, distance: int) -> "EdgeList":
        """The edges that reach further back than ``distance`` positions: what a window of that width cannot hold."""
        return self.select(self.later - self.earlier > distance)


@dataclass(frozen=True)
class Band:
    """Every pair (t, p) with 1 ≤ t − p ≤ ``width``: a window, or with ``width`` = length − 1 the complete causal site.

    Its edges are counted, not stored: Σ_t min(t, w) = n·w − w(w + 1)/2 for w ≤ n − 1. They are all of the type
    ``name``, or of none.
    """

    length: int
    width: int
    name: str | None = None

    def __post_init__(self) -> None:
        if self.length < 0 or self.width < 0:
            raise InputError(f"a band needs a length and a width of 0 or more, got {self.length} and {self.width}")

    @classmethod
    def complete(cls, length: int) -> "Band":
        """The complete causal site over ``length`` positions: n(n − 1)/2 edges."""
        return cls(length, max(length - 1, 0))

    def edge_list(self) -> EdgeList:
        """The same edges one by one, ordered by ``later`` and then ``earlier``; a band without a name is "untyped"."""
        offsets = np.arange(min(self.width, max(self.length - 1, 0)), 0, -1)
        later, offset = np.broadcast_arrays(np.arange(self.length)[:, None], offsets[None, :])
        inside = offset <= later
        later, earlier = later[inside], (later - offset)[inside]
        return EdgeList(later, earlier, np.zeros(len(later), np.int8), (self.name or "untyped",), self.length)


Site = EdgeList | Band
"""What ``coverage`` and ``waste`` take as a site."""


def num_edges(site: Site) -> int:
    """Number of distinct pairs of a site."""
    if isinstance(site, Band):
        width = min(site.width, max(site.length - 1, 0))
        return site.length * width - width * (width + 1) // 2
    return len(site.keys)


def num_shared(site: Site, truth: EdgeList) -> int:
    """Number of distinct pairs that ``site`` and ``truth`` have in common.

    Raises:
        InputError: if they are not over the same number of positions.
    """
    if site.length != truth.length:
        raise InputError(f"a site over {site.length} positions cannot be held against a graph over {truth.length}")
    if isinstance(site, Band):
        later = truth.keys // max(truth.length, 1)
        distance = later * (truth.length + 1) - truth.keys
        return int(np.count_nonzero(distance <= site.width))
    return _num_common(site.keys, truth.keys)


def coverage(site: Site, truth: EdgeList) -> float:
    """Share of the distinct true pairs that ``site`` holds under any type; ``nan`` if there are none."""
    return _share(num_shared(site, truth), num_edges(truth))


def waste(site: Site, truth: EdgeList) -> float:
    """Share of the distinct pairs of ``site`` that are not true under any type; ``nan`` for a site without edges."""
    edges = num_edges(site)
    return _share(edges - num_shared(site, truth), edges)


def coverage_by_type(site: Site, truth: EdgeList) -> dict[str, float]:
    """For every type of ``truth``: the share of its distinct pairs that ``site`` holds under any type."""
    return {name: coverage(site, truth.of_type(name)) for name in truth.names}


def waste_by_type(site: EdgeList, truth: EdgeList) -> dict[str, float]:
    """For every type of ``site``: the share of its distinct pairs that are true under no type."""
    return {name: waste(site.of_type(name), truth) for name in site.names}


def edges_by_type(edges: EdgeList) -> dict[str, int]:
    """For every type: its distinct pairs. A pair with two types counts in both."""
    return {name: num_edges(edges.of_type(name)) for name in edges.names}


def edges_per_token(site: Site) -> float:
    """Distinct pairs over positions; ``nan`` for a site without positions."""
    return _share(num_edges(site), site.length)


def degrees(edges: EdgeList) -> NDArray[np.int64]:
    """For every position, how many distinct earlier positions it reads, int64 ``(length,)``."""
    if edges.length == 0:
        return np.zeros(0, np.int64)
    return np.bincount(edges.keys // edges.length, minlength=edges.length)


def distinct(edges: EdgeList) -> EdgeList:
    """Every pair once, with the type, head and weight of its first entry, ordered by ``later``, then ``earlier``."""
    _, first = np.unique(edges.later * edges.length + edges.earlier, return_index=True)
    return edges.select(first)


def concatenate(lists: Sequence[EdgeList]) -> EdgeList:
    """The edges of several lists over the same positions, one after another, with the union of their types.

    Heads (weights) are kept if every list has them.

    Raises:
        InputError: for no list at all, or lists over different numbers of positions.
    """
    lengths = {edges.length for edges in lists}
    if len(lengths) != 1:
        raise InputError(f"edge lists to be joined must be over one number of positions, got {sorted(lengths)}")
    names = tuple(dict.fromkeys(name for edges in lists for name in edges.names))
    recode = [np.array([names.index(name) for name in edges.names], np.int8) for edges in lists]
    heads = [edges.heads for edges in lists if edges.heads is not None]
    weights = [edges.weights for edges in lists if edges.weights is not None]
    return EdgeList(
        np.concatenate([edges.later for edges in lists]),
        np.concatenate([edges.earlier for edges in lists]),
        np.concatenate([codes[edges.types] for codes, edges in zip(recode, lists, strict=True)]),
        names,
        lengths.pop(),
        np.concatenate(heads) if len(heads) == len(lists) else None,
        np.concatenate(weights) if len(weights) == len(lists) else None,
    )


def _read_only(value: ArrayLike, dtype: type, column: str) -> NDArray[Any]:
    given = np.asarray(value)
    if given.ndim != 1:
        raise InputError(f"an edge list's {column} must be one-dimensional, got the shape {given.shape}")
    array: NDArray[Any] = given.astype(dtype, copy=False).view()
    if array.dtype.kind == "i" and array.dtype != given.dtype and not np.array_equal(array, given):
        raise InputError(f"an edge list's {column} must be whole numbers that {array.dtype} holds")
    array.flags.writeable = False
    return array


def _num_common(first: NDArray[np.int64], second: NDArray[np.int64]) -> int:
    """Size of the intersection of two sorted arrays without repeats."""
    both = np.concatenate((first, second))
    both.sort(kind="stable")  # merges the two runs
    return int(np.count_nonzero(both[1:] == both[:-1]))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
