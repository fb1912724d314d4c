"""Whether the relations that a model used are those that are there: a learned site beside a graph that is known.

A site is what all layers and heads related, as pairs of units: tokens, or what tokens belong to (words, positions of a
graph). It is held against the true pairs by coverage and waste (``sheafstate.edges``), and beside sites of the same
degrees that nobody learned: the nearest units, units at random, the true ones first, the last units of the same name.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sheafstate.edges import EdgeList, num_edges, num_shared
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.patches import HEAD_TYPES

__all__ = [
    "at_least",
    "held",
    "nearest_site",
    "oracle_site",
    "random_site",
    "regroup",
    "same_name_site",
    "strongest",
    "used_edges",
]


@torch.no_grad()
def used_edges(
    model: SheafStateForCausalLM, input_ids: torch.Tensor, total: bool = False, by_share: bool = False
) -> list[EdgeList]:
    """What every row's tokens read in any layer and head, each pair once, with its largest weight and that one's type.

    Args:
        model: the model; its mode is left as it was.
        input_ids: (B, T).
        total: whether a pair's weight is what all layers and heads together give it.
        by_share: whether a head's weights count by the head's share in what the layer adds to the residual stream, so
            that a head whose gate is closed used nothing.
    """
    was_training = model.training
    model.eval()
    try:
        layers = model.model(input_ids.to(model.device), output_site=True, use_cache=False).site
    finally:
        model.train(was_training)
    found = []
    heads = np.cumsum([0, *model.config.covers.values()])
    begins = np.zeros(len(HEAD_TYPES), np.int64)
    begins[[HEAD_TYPES.index(kind) for kind in model.config.covers]] = heads[:-1]
    for row in range(len(input_ids)):
        lists = [layer.edges[row] for layer in layers]
        if by_share:
            shares = [layer.shares[row].cpu().numpy() for layer in layers]
            lists = [_by_share(*pair, begins) for pair in zip(lists, shares, strict=True)]
        later, earlier, types, weights = (
            np.concatenate([getattr(e, name) for e in lists]) for name in ("later", "earlier", "types", "weights")
        )
        found.append(_once(EdgeList(later, earlier, types, lists[0].names, lists[0].length, None, weights), total))
    return found


def _by_share(edges: EdgeList, shares: NDArray[np.float32], begins: NDArray[np.int64]) -> EdgeList:
    """Edges whose weights are times the share of their head: (H, T), the heads of each type beginning at ``begins``."""
    if edges.heads is None:
        raise InputError("these edges do not say whose they are")
    weights = _weights(edges) * shares[begins[edges.types] + edges.heads, edges.later]
    return EdgeList(edges.later, edges.earlier, edges.types, edges.names, edges.length, edges.heads, weights)


def _once(edges: EdgeList, total: bool) -> EdgeList:
    """Every pair once, with its largest weight or the sum of them, and the type of the largest."""
    weights = _weights(edges)
    order = np.lexsort((-weights, edges.earlier, edges.later))
    pairs = edges.later[order] * edges.length + edges.earlier[order]
    begins = np.flatnonzero(np.diff(pairs, prepend=-1))
    kept = edges.select(order[begins])
    if not total or not len(begins):
        return kept
    sums = np.add.reduceat(weights[order], begins)
    return EdgeList(kept.later, kept.earlier, kept.types, kept.names, kept.length, None, sums)


def _weights(edges: EdgeList) -> NDArray[np.float32]:
    if edges.weights is None:
        raise InputError("these edges say nothing of how strong they are")
    return edges.weights


def regroup(edges: EdgeList, unit: NDArray[np.int64], length: int, total: bool = False) -> EdgeList:
    """Edges between the units that tokens belong to, each pair once with its largest weight; −1 belongs to none.

    Args:
        edges: between tokens, with weights.
        unit: of every token, never falling where it is not −1.
        length: number of units.
        total: whether a pair of units gets the sum of its tokens' weights.
    """
    weights, later, earlier = _weights(edges), unit[edges.later], unit[edges.earlier]
    kept = (later >= 0) & (earlier >= 0) & (later != earlier)
    grouped = EdgeList(later[kept], earlier[kept], edges.types[kept], edges.names, length, None, weights[kept])
    return _once(grouped, total)


def at_least(edges: EdgeList, weight: float) -> EdgeList:
    """The edges of that weight or more."""
    return edges.select(_weights(edges) >= weight)


def strongest(edges: EdgeList, degree: int) -> EdgeList:
    """Of every unit the ``degree`` edges of most weight; of equal ones the nearer."""
    order = np.lexsort((-edges.earlier, -_weights(edges), edges.later))
    later = edges.later[order]
    begin = np.maximum.accumulate(np.where(np.diff(later, prepend=-1) != 0, np.arange(len(later)), 0))
    return edges.select(order[np.arange(len(later)) - begin < degree])


def _site(pairs: Sequence[tuple[int, NDArray[np.int64]]], name: str, length: int) -> EdgeList:
    later = np.concatenate([np.full(len(read), t, np.int64) for t, read in pairs] or [np.zeros(0, np.int64)])
    earlier = np.concatenate([read for _, read in pairs] or [np.zeros(0, np.int64)])
    return EdgeList(later, earlier.astype(np.int64), np.zeros(len(later), np.int8), (name,), length)


def nearest_site(counts: NDArray[np.int64], beyond: int = 0) -> EdgeList:
    """As many edges of every unit as ``counts`` says, to the nearest units that are further back than ``beyond``."""
    pairs = [(t, np.arange(max(0, t - beyond - int(n)), max(0, t - beyond))) for t, n in enumerate(counts) if n]
    return _site(pairs, "nearest", len(counts))


def random_site(counts: NDArray[np.int64], rng: np.random.Generator, beyond: int = 0) -> EdgeList:
    """As many edges of every unit, to different units at random that are further back than ``beyond``."""
    pairs = []
    for t, n in enumerate(counts):
        allowed = max(0, t - beyond)
        if n and allowed:
            pairs.append((t, rng.choice(allowed, min(int(n), allowed), replace=False)))
    return _site(pairs, "random", len(counts))


def oracle_site(counts: NDArray[np.int64], truth: EdgeList) -> EdgeList:
    """As many edges of every unit, the true ones first, then the nearest: the best site of these degrees."""
    true = {t: truth.earlier[truth.later == t] for t in np.unique(truth.later).tolist()}
    pairs = []
    for t, n in enumerate(counts):
        if not n:
            continue
        wanted = np.unique(true.get(t, np.zeros(0, np.int64)))[-int(n) :]
        others = np.setdiff1d(np.arange(t), wanted, assume_unique=True)[::-1][: int(n) - len(wanted)]
        pairs.append((t, np.concatenate([wanted, others])))
    return _site(pairs, "oracle", len(counts))


def same_name_site(names: Sequence[str], degree: int, beyond: int = 0) -> EdgeList:
    """Of every unit the last ``degree`` units of the same name that are further back than ``beyond``."""
    seen: dict[str, list[int]] = {}
    pairs = []
    for t, name in enumerate(names):
        places = seen.setdefault(name, [])
        far = [p for p in places if t - p > beyond][-degree:]
        if far:
            pairs.append((t, np.array(far, np.int64)))
        places.append(t)
    return _site(pairs, "same name", len(names))


def held(sites: Sequence[EdgeList], truths: Sequence[EdgeList]) -> dict[str, float]:
    """Coverage of all true pairs and of each type's, waste, and edges a unit, counted over all rows together.

    Keys are ``coverage``, ``coverage_TYPE``, ``waste`` and ``edges``; what has nothing to divide by is left out.
    """
    shared = sum(num_shared(site, truth) for site, truth in zip(sites, truths, strict=True))
    edges, true = sum(map(num_edges, sites)), sum(map(num_edges, truths))
    figures = {"edges": edges / max(1, sum(site.length for site in sites))}
    if true:
        figures["coverage"] = shared / true
    if edges:
        figures["waste"] = 1 - shared / edges
    for name in dict.fromkeys(name for truth in truths for name in truth.names):
        pairs = [(site, truth.of_type(name)) for site, truth in zip(sites, truths, strict=True) if name in truth.names]
        of_type = sum(num_edges(truth) for _, truth in pairs)
        if of_type:
            figures[f"coverage_{name}"] = sum(num_shared(site, truth) for site, truth in pairs) / of_type
    return figures
