"""Beyond one run: over length, seeds, every rate, and every budget of the sheaf site.

A sweep is planned as a list of cases, so that whoever runs it can show how far it is, and summed up afterwards:
scaling exponents by least squares on log edges = a + b·log n, the spread over seeds by mean and standard deviation.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from sheafstate.errors import InputError
from sheafstate.simulation.config import SimulationConfig
from sheafstate.simulation.measure import SITES, Run, simulate

__all__ = [
    "BUDGET_GRID",
    "RATE_GRID",
    "SCALING_LENGTHS",
    "Case",
    "Fit",
    "Point",
    "Spread",
    "Sweep",
    "fit_exponents",
    "plan",
    "run_case",
    "spread",
]

SCALING_LENGTHS: tuple[int, ...] = tuple(2**k for k in range(10, 23))
"""1,024 to 4,194,304."""

NUM_SEEDS = 20

RATE_GRID: dict[str, tuple[float, ...]] = {
    "local_links": (0, 1, 2, 3),
    "local_span": (2, 3, 4, 6, 8, 12),
    "preamble": (4, 16, 64, 256, 1024),
    "instructions": (0, 1, 2, 4, 8, 16),
    "instruction_references": (0.0, 0.006, 0.012, 0.024, 0.048, 0.096),
    "topic_anchors": (0.0, 0.001, 0.004, 0.016, 0.064),
    "live_topics": (1, 2, 4, 8, 16),
    "topic_references": (0.0, 0.006, 0.012, 0.024, 0.048, 0.096),
    "mentions": (0.0, 0.007, 0.014, 0.027, 0.054, 0.108),
    "entities": (1, 4, 16, 64, 256, 1024),
    "entity_skew": (0.0, 0.5, 1.0, 1.5, 2.0),
    "recurrence_depth": (1, 2, 3, 4, 6, 8),
    "recurrence_decay": (0.0, 0.25, 0.5, 0.75, 1.0),
    "hidden_marks": (0.0, 0.01, 0.02, 0.05, 0.1, 0.2),
    "false_marks": (0.0, 0.005, 0.01, 0.02, 0.05, 0.1),
}
"""For every field of ``Rates`` the values that the sweep over rates gives it, the others staying as they are."""

BUDGET_GRID: dict[str, tuple[int, ...]] = {
    "window": (0, 1, 2, 3, 4, 6, 8),
    "kept_anchors": (0, 1, 2, 3, 4, 5, 6, 8),
    "recent_anchors": (0, 1, 2, 3, 4, 6, 8, 12, 16),
    "recent_mentions": (0, 1, 2, 3, 4, 6, 8),
}
"""For every field of ``Budget`` the values that the sweep over budgets gives it, the others staying as they are."""


class Sweep(StrEnum):
    """What a sweep varies."""

    SCALING = "scaling"
    SEEDS = "seeds"
    RATES = "rates"
    BUDGET = "budget"


@dataclass(frozen=True)
class Case:
    """One run to be made; ``parameter`` has the ``value``, everything else is as in the sweep's configuration."""

    parameter: str
    value: float
    length: int
    seed: int
    config: SimulationConfig


@dataclass(frozen=True)
class Point:
    """One run that was made, and the seconds that drawing and measuring it took."""

    parameter: str
    value: float
    seconds: float
    run: Run


@dataclass(frozen=True)
class Fit:
    """Edges ∝ n^exponent, with the standard error of the exponent."""

    exponent: float
    standard_error: float


@dataclass(frozen=True)
class Spread:
    """Of one figure over seeds; ``std`` is the sample's standard deviation (n − 1)."""

    mean: float
    std: float
    min: float
    max: float


def plan(sweep: Sweep, config: SimulationConfig, lengths: Sequence[int], seeds: Sequence[int]) -> list[Case]:
    """The cases of a sweep, shortest first where lengths differ.

    Args:
        sweep: what is varied.
        config: what everything else stays at.
        lengths: for ``SCALING`` the lengths, if there are at least two, else ``SCALING_LENGTHS``; for the others, the
            first is the length.
        seeds: every case is run with each; for ``SEEDS``, if there is only one, 20 seeds from it on.
    """
    if sweep is Sweep.SCALING:
        scale = sorted(set(lengths)) if len(set(lengths)) > 1 else SCALING_LENGTHS
        return [Case("length", n, n, seed, config) for n in scale for seed in seeds]
    length = lengths[0]
    if sweep is Sweep.SEEDS:
        drawn = seeds if len(seeds) > 1 else range(seeds[0], seeds[0] + NUM_SEEDS)
        return [Case("seed", seed, length, seed, config) for seed in drawn]
    part = {Sweep.RATES: "rates", Sweep.BUDGET: "budget"}[sweep]
    return [
        Case(parameter, value, length, seed, varied)
        for parameter, value, varied in _variants(config, part)
        for seed in seeds
    ]


def run_case(case: Case) -> Point:
    """Draw and measure one case."""
    start = time.perf_counter()
    run = simulate(case.length, case.seed, case.config)
    return Point(case.parameter, case.value, time.perf_counter() - start, run)


def fit_exponents(points: Iterable[Point]) -> dict[str, Fit]:
    """For G* ("true") and every site: the exponent b of edges ∝ n^b over runs of different lengths.

    Left out is what has edges at fewer than two lengths.
    """
    runs = [point.run for point in points]
    counts = {"true": [(run.length, run.true_edges) for run in runs]}
    counts |= {site: [(run.length, run.sites[site].edges) for run in runs] for site in SITES}
    seen = {name: [(n, edges) for n, edges in pairs if edges > 0] for name, pairs in counts.items()}
    return {name: _fit(pairs) for name, pairs in seen.items() if len({n for n, _ in pairs}) > 1}


def spread(points: Iterable[Point]) -> dict[str, dict[str, Spread]]:
    """For G* ("true") and every site: mean, deviation and range of edges, and of coverage and waste, over runs."""
    runs = [point.run for point in points]
    result = {"true": {"edges": _spread([run.true_edges for run in runs])}}
    for site in SITES:
        figures = {name: [getattr(run.sites[site], name) for run in runs] for name in ("edges", "coverage", "waste")}
        result[site] = {name: _spread(values) for name, values in figures.items() if None not in values}
    return result


def _variants(config: SimulationConfig, part: str) -> Iterator[tuple[str, float, SimulationConfig]]:
    """The grid's values for ``part`` of the configuration, without those that its other values do not allow."""
    record = getattr(config, part)
    grid: Mapping[str, Sequence[float]] = RATE_GRID if part == "rates" else BUDGET_GRID
    for parameter, values in grid.items():
        for value in values:
            try:
                varied = replace(record, **{parameter: value})
            except InputError:
                continue
            yield parameter, value, replace(config, **{part: varied})


def _fit(pairs: Sequence[tuple[int, int]]) -> Fit:
    x, y = np.log(np.array(pairs, np.float64)).T
    x, y = x - x.mean(), y - y.mean()
    exponent = float(x @ y / (x @ x))
    residual = float(np.sum((y - exponent * x) ** 2))
    return Fit(exponent, (residual / max(len(x) - 2, 1) / float(x @ x)) ** 0.5)


def _spread(values: Sequence[float]) -> Spread:
    array = np.array(values, np.float64)
    std = float(array.std(ddof=1)) if len(array) > 1 else 0.0
    return Spread(float(array.mean()), std, float(array.min()), float(array.max()))
