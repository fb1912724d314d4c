"""Edge lists, coverage and waste equal what Python's sets say."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.edges import (
    Band,
    EdgeList,
    concatenate,
    coverage,
    coverage_by_type,
    degrees,
    distinct,
    edges_by_type,
    edges_per_token,
    num_edges,
    num_shared,
    waste,
    waste_by_type,
)
from sheafstate.errors import InputError

NAMES = ("local", "retrieval", "unused")
Triple = tuple[int, int, int]


def edge_list(triples: list[Triple], length: int, names: tuple[str, ...] = NAMES, **columns) -> EdgeList:
    later, earlier, types = zip(*triples, strict=True) if triples else ((), (), ())
    return EdgeList(later, earlier, types, names, length, **columns)


def pairs(triples: list[Triple], type_: int | None = None) -> set[tuple[int, int]]:
    return {(t, p) for t, p, code in triples if type_ is None or code == type_}


def share(part: set, whole: set) -> float:
    return len(part) / len(whole) if whole else math.nan


@st.composite
def graphs(draw) -> tuple[int, list[Triple], list[Triple]]:
    """A length, and two lists of typed edges over it, with repeats; small lengths make them overlap."""
    length = draw(st.integers(2, 12))
    position = st.integers(1, length - 1).flatmap(lambda t: st.tuples(st.just(t), st.integers(0, t - 1)))
    edge = st.tuples(position, st.integers(0, 1)).map(lambda e: (*e[0], e[1]))
    return length, draw(st.lists(edge, max_size=40)), draw(st.lists(edge, max_size=40))


@given(graphs())
def test_metrics_equal_those_of_sets(graph) -> None:
    length, site_edges, true_edges = graph
    site, truth = edge_list(site_edges, length), edge_list(true_edges, length)
    S, G = pairs(site_edges), pairs(true_edges)

    assert num_edges(site) == len(S)
    assert num_shared(site, truth) == len(S & G)
    assert edges_per_token(site) == len(S) / length
    assert coverage(site, truth) == pytest.approx(share(S & G, G), nan_ok=True)
    assert waste(site, truth) == pytest.approx(share(S - G, S), nan_ok=True)
    assert degrees(site).tolist() == [sum(t == later for later, _ in S) for t in range(length)]
    for code, name in enumerate(NAMES):
        own, true = pairs(site_edges, code), pairs(true_edges, code)
        assert edges_by_type(site)[name] == len(own)
        assert coverage_by_type(site, truth)[name] == pytest.approx(share(S & true, true), nan_ok=True)
        assert waste_by_type(site, truth)[name] == pytest.approx(share(own - G, own), nan_ok=True)


@given(graphs(), st.integers(0, 15))
def test_a_band_is_counted_as_if_its_edges_were_listed(graph, width: int) -> None:
    length, _, true_edges = graph
    truth, band = edge_list(true_edges, length), Band(length, width, "local")
    listed = band.edge_list()
    expected = {(t, p) for t in range(length) for p in range(max(t - width, 0), t)}
    assert sorted(expected) == list(zip(listed.later.tolist(), listed.earlier.tolist(), strict=True))
    assert listed.names == ("local",)
    assert num_edges(band) == len(expected)
    assert edges_per_token(band) == len(expected) / length
    assert num_shared(band, truth) == len(expected & pairs(true_edges))
    assert coverage(band, truth) == pytest.approx(coverage(listed, truth), nan_ok=True)
    assert waste(band, truth) == pytest.approx(waste(listed, truth), nan_ok=True)


def test_the_complete_band() -> None:
    assert num_edges(Band.complete(32_768)) == 32_768 * 32_767 // 2 == 536_854_528
    assert num_edges(Band(32_768, 10**9)) == 536_854_528
    assert num_edges(Band.complete(0)) == num_edges(Band.complete(1)) == 0
    assert Band.complete(4).edge_list().names == ("untyped",)


def test_counts_beyond_32_bits_are_exact() -> None:
    n = 4_194_304
    assert num_edges(Band.complete(n)) == n * (n - 1) // 2
    far = EdgeList([n - 1, n - 1, 5], [n - 2, 0, 4], [0, 0, 0], ("local",), n)
    assert num_edges(far) == 3
    assert num_shared(Band(n, 1), far) == 2
    assert num_shared(EdgeList([n - 1], [0], [0], ("local",), n), far) == 1


@given(graphs())
def test_distinct_keeps_the_first_entry_of_every_pair(graph) -> None:
    length, edges, _ = graph
    heads = list(range(len(edges)))
    kept = distinct(edge_list(edges, length, heads=heads))
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for head, (t, p, code) in enumerate(edges):
        first.setdefault((t, p), (code, head))
    rows = zip(kept.later.tolist(), kept.earlier.tolist(), kept.types.tolist(), kept.heads.tolist(), strict=True)
    assert [((t, p), (code, head)) for t, p, code, head in rows] == sorted(first.items())


@given(graphs())
def test_concatenate_joins_types_by_name(graph) -> None:
    length, first, second = graph
    joined = concatenate([edge_list(first, length), edge_list(second, length, ("memory", "local", "topic"))])
    assert joined.names == ("local", "retrieval", "unused", "memory", "topic")
    expected = [(t, p, NAMES[c]) for t, p, c in first] + [(t, p, ("memory", "local")[c]) for t, p, c in second]
    named = [joined.names[code] for code in joined.types]
    assert list(zip(joined.later.tolist(), joined.earlier.tolist(), named, strict=True)) == expected


def test_concatenate_keeps_heads_that_all_have() -> None:
    with_heads = edge_list([(1, 0, 0)], 2, heads=[3], weights=[0.5])
    assert concatenate([with_heads, with_heads]).heads.tolist() == [3, 3]
    assert concatenate([with_heads, with_heads]).weights.tolist() == [0.5, 0.5]
    assert concatenate([with_heads, edge_list([(1, 0, 0)], 2)]).heads is None
    with pytest.raises(InputError, match="one number of positions"):
        concatenate([with_heads, edge_list([], 3)])
    with pytest.raises(InputError, match="one number of positions"):
        concatenate([])


def test_selections() -> None:
    edges = edge_list([(5, 0, 0), (5, 4, 1), (3, 1, 1)], 6, heads=[1, 2, 3], weights=[0.1, 0.2, 0.3])
    assert edges.of_type("retrieval").heads.tolist() == [2, 3]
    assert edges.beyond(2).later.tolist() == [5]
    assert edges.beyond(1).weights.tolist() == pytest.approx([0.1, 0.3])
    assert edges.select(slice(1, None)).earlier.tolist() == [4, 1]
    assert len(edges.of_type("unused")) == 0
    with pytest.raises(InputError, match="no edge type 'other'; the types are local, retrieval, unused"):
        edges.of_type("other")


def test_an_edge_list_holds_its_own_types_and_cannot_be_written_to() -> None:
    given_ = np.array([2, 1], np.int32)
    edges = EdgeList(given_, [0, 0], [0, 1], NAMES, 3, heads=[0, 1], weights=[1, 0])
    dtypes = [edges.later.dtype, edges.earlier.dtype, edges.types.dtype, edges.heads.dtype, edges.weights.dtype]
    assert dtypes == [np.int64, np.int64, np.int8, np.int16, np.float32]
    for array in (edges.later, edges.weights, edges.keys):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    given_[0] = 1  # the caller's own array stays writable


BAD = {
    "self-edge": (([1], [1], [0], NAMES, 3), "earlier one"),
    "forward": (([1], [2], [0], NAMES, 3), "earlier one"),
    "beyond the end": (([3], [1], [0], NAMES, 3), "positions 0 to 2"),
    "before the start": (([1], [-1], [0], NAMES, 3), "positions 0 to 2"),
    "unknown type": (([1], [0], [3], NAMES, 3), "codes 0 to 2"),
    "negative type": (([1], [0], [-1], NAMES, 3), "codes 0 to 2"),
    "type that would wrap": (([1], [0], [256], NAMES, 3), "types must be whole numbers"),
    "fraction": (([1.5], [0], [0], NAMES, 3), "later must be whole numbers"),
    "lengths differ": (([1, 2], [0], [0], NAMES, 3), "one length"),
    "head missing": (([1], [0], [0], NAMES, 3, []), "one length"),
    "two dimensions": (([[1]], [0], [0], NAMES, 3), "one-dimensional"),
    "name twice": (([1], [0], [0], ("local", "local"), 3), "different names"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_edges_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EdgeList(*arguments)


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="3 positions cannot be held against a graph over 2"):
        coverage(Band(3, 1), edge_list([], 2))
    with pytest.raises(InputError, match="0 or more, got 3 and -1"):
        Band(3, -1)


def test_nothing_is_not_a_share() -> None:
    empty = edge_list([], 4)
    assert math.isnan(coverage(empty, empty))
    assert math.isnan(waste(empty, empty))
    assert math.isnan(waste(Band(4, 0), empty))
    assert math.isnan(edges_per_token(Band(0, 0)))
    assert degrees(edge_list([], 0)).tolist() == []
