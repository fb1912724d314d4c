"""Three sites over one sequence, and what each holds of G*."""

from collections.abc import Callable
from dataclasses import dataclass

from sheafstate.edges import Band, EdgeList, Site, num_edges, num_shared
from sheafstate.simulation.config import SimulationConfig
from sheafstate.simulation.covers import sheaf_site
from sheafstate.simulation.generator import Relation, Sample, generate

__all__ = ["SITES", "Measurement", "Run", "TypeMeasurement", "measure", "simulate"]

SITES = ("dense", "window", "sheaf")


@dataclass(frozen=True)
class TypeMeasurement:
    """One relation type in one site.

    Attributes:
        true_edges: the graph's edges of this type.
        coverage: share of them that the site holds, under whatever type; ``None`` if there are none.
        edges: the site's edges of this type; ``None`` for a site whose edges have no types.
        waste: share of those that are true under no type; ``None`` where ``edges`` is ``None`` or 0.
        edges_per_token: ``edges`` over the length, or ``None``.
    """

    true_edges: int
    coverage: float | None
    edges: int | None
    waste: float | None
    edges_per_token: float | None


@dataclass(frozen=True)
class Measurement:
    """One site: distinct edges, coverage and waste as shares, edges per token, and the same by relation type."""

    edges: int
    coverage: float | None
    waste: float | None
    edges_per_token: float
    by_type: dict[str, TypeMeasurement]


@dataclass(frozen=True)
class Run:
    """What one simulated sequence showed: the sites are measured against its ``true_edges``."""

    length: int
    seed: int
    true_edges: int
    sites: dict[str, Measurement]


def simulate(length: int, seed: int = 0, config: SimulationConfig | None = None) -> Run:
    """Draw one sequence and measure the dense, the windowed and the sheaf site on it.

    Raises:
        InputError: for a length or a seed that is not allowed.
    """
    config = config or SimulationConfig()
    sample = generate(length, config.rates, seed)
    return measure(sample, seed, config)


def measure(sample: Sample, seed: int, config: SimulationConfig) -> Run:
    """Measure the three sites on a sample that was drawn before."""
    observed, truth = sample.observed, sample.truth
    of_type = {name: truth.of_type(name) for name in truth.names}
    sites: dict[str, Callable[[], Site]] = {
        "dense": lambda: Band.complete(observed.length),
        "window": lambda: Band(observed.length, config.baseline_window, str(Relation.LOCAL)),
        "sheaf": lambda: sheaf_site(observed, config.budget),
    }
    measured = {name: _measure_site(make(), truth, of_type) for name, make in sites.items()}
    return Run(observed.length, seed, num_edges(truth), measured)


def _measure_site(site: Site, truth: EdgeList, of_type: dict[str, EdgeList]) -> Measurement:
    edges, shared = num_edges(site), num_shared(site, truth)
    return Measurement(
        edges=edges,
        coverage=_share(shared, num_edges(truth)),
        waste=_share(edges - shared, edges),
        edges_per_token=edges / truth.length,
        by_type={relation: _measure_type(relation, site, truth, true) for relation, true in of_type.items()},
    )


def _measure_type(relation: str, site: Site, truth: EdgeList, true: EdgeList) -> TypeMeasurement:
    """A relation whose true edges are ``true``; what the site has under its name is held against the whole graph."""
    coverage = _share(num_shared(site, true), len(true))
    if isinstance(site, Band) and site.name is None:
        return TypeMeasurement(len(true), coverage, None, None, None)
    own = _of_type(site, relation)
    edges = num_edges(own)
    waste = _share(edges - num_shared(own, truth), edges)
    return TypeMeasurement(len(true), coverage, edges, waste, edges / truth.length)


def _of_type(site: Site, relation: str) -> Site:
    if isinstance(site, Band):
        return site if site.name == relation else Band(site.length, 0)
    return site.of_type(relation)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
