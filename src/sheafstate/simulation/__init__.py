r"""How many true relations does a site hold, at what cost, when the true relations are known?

``generate`` draws a sequence with a known sparse typed dependency graph G*: every position depends on a few just
before it, a few depend on an instruction or a topic far back, a few on an earlier mention of the same entity. Three
sites stand against it: the complete causal one (counted by formula), a window, and the sheaf site, which cover laws
build from what the sequence shows (marks and labels), never from G*. For a site S, as sets of pairs,

    coverage = \|S ∩ G*\| / \|G*\|,    waste = 1 − \|S ∩ G*\| / \|S\|.

    >>> run = simulate(32_768, seed=0)
    >>> run.sites["sheaf"].coverage
    1.0

``experiment`` runs many and sweeps over length, seeds, rates and budgets; ``write_results`` writes what it found.
This package needs NumPy alone.
"""

from sheafstate.simulation.config import MAX_LENGTH, Budget, Rates, SimulationConfig
from sheafstate.simulation.covers import COVERS, anchor_cover, content_cover, sheaf_site, window_cover
from sheafstate.simulation.generator import Mark, Observed, Relation, Sample, generate
from sheafstate.simulation.measure import SITES, Measurement, Run, TypeMeasurement, measure, simulate
from sheafstate.simulation.presets import PRESETS, configure
from sheafstate.simulation.results import RECORD_NAME, experiment, run_as_dict, write_results
from sheafstate.simulation.sweeps import (
    BUDGET_GRID,
    RATE_GRID,
    SCALING_LENGTHS,
    Case,
    Fit,
    Point,
    Spread,
    Sweep,
    fit_exponents,
    plan,
    run_case,
    spread,
)

__all__ = [
    "BUDGET_GRID",
    "COVERS",
    "MAX_LENGTH",
    "PRESETS",
    "RATE_GRID",
    "RECORD_NAME",
    "SCALING_LENGTHS",
    "SITES",
    "Budget",
    "Case",
    "Fit",
    "Mark",
    "Measurement",
    "Observed",
    "Point",
    "Rates",
    "Relation",
    "Run",
    "Sample",
    "SimulationConfig",
    "Spread",
    "Sweep",
    "TypeMeasurement",
    "anchor_cover",
    "configure",
    "content_cover",
    "experiment",
    "fit_exponents",
    "generate",
    "measure",
    "plan",
    "run_as_dict",
    "run_case",
    "sheaf_site",
    "simulate",
    "spread",
    "window_cover",
    "write_results",
]
