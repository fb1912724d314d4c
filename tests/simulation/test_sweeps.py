"""Sweeps vary what they say, and are summed up by formulas that can be checked."""

import math
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from sheafstate.simulation import (
    BUDGET_GRID,
    RATE_GRID,
    SCALING_LENGTHS,
    SITES,
    Budget,
    Case,
    Point,
    Rates,
    SimulationConfig,
    Sweep,
    configure,
    fit_exponents,
    plan,
    run_case,
    spread,
)

CONFIG = SimulationConfig()


def points(sweep: Sweep, lengths: list[int], seeds: list[int], config: SimulationConfig = CONFIG) -> list[Point]:
    return [run_case(case) for case in plan(sweep, config, lengths, seeds)]


def test_every_rate_and_every_budget_is_swept_through_the_default() -> None:
    assert set(RATE_GRID) == {f.name for f in fields(Rates)}
    assert set(BUDGET_GRID) == {f.name for f in fields(Budget)}
    for grid, record in ((RATE_GRID, CONFIG.rates), (BUDGET_GRID, CONFIG.budget)):
        for name, values in grid.items():
            assert getattr(record, name) in values
            assert list(values) == sorted(set(values))


@pytest.mark.parametrize("part", ["rates", "budget"])
def test_a_grid_changes_one_value_at_a_time(part: str) -> None:
    cases = plan(Sweep(part), CONFIG, [500, 900], [3, 4])
    grid = {"rates": RATE_GRID, "budget": BUDGET_GRID}[part]
    assert len(cases) == 2 * sum(len(values) for values in grid.values())
    for case in cases:
        assert case.length == 500
        assert case.seed in (3, 4)
        record = getattr(case.config, part)
        assert getattr(record, case.parameter) == case.value
        back = replace(record, **{case.parameter: getattr(getattr(CONFIG, part), case.parameter)})
        assert replace(case.config, **{part: back}) == CONFIG


def test_values_that_the_others_do_not_allow_are_left_out() -> None:
    config = configure("default", {"instructions": 8, "local_links": 3})
    cases = plan(Sweep.RATES, config, [100], [0])
    values = {name: [c.value for c in cases if c.parameter == name] for name in RATE_GRID}
    assert values["preamble"] == [16, 64, 256, 1024]
    assert values["local_span"] == [3, 4, 6, 8, 12]
    assert values["entities"] == list(RATE_GRID["entities"])


def test_scaling_reaches_four_million_unless_told_otherwise() -> None:
    assert [case.length for case in plan(Sweep.SCALING, CONFIG, [32_768], [0])] == list(SCALING_LENGTHS)
    assert SCALING_LENGTHS[-1] == 4_194_304
    assert [case.length for case in plan(Sweep.SCALING, CONFIG, [64, 16, 64], [0, 1])] == [16, 16, 64, 64]


def test_seeds_are_twenty_unless_told_otherwise() -> None:
    assert [case.seed for case in plan(Sweep.SEEDS, CONFIG, [64], [7])] == list(range(7, 27))
    assert [case.seed for case in plan(Sweep.SEEDS, CONFIG, [64], [7, 3])] == [7, 3]


def test_scaling_exponents() -> None:
    fits = fit_exponents(points(Sweep.SCALING, [2**k for k in range(10, 19)], [0]))
    assert set(fits) == {"true", *SITES}
    assert fits["dense"].exponent == pytest.approx(2, abs=0.01)
    for name in ("window", "sheaf", "true"):
        assert fits[name].exponent == pytest.approx(1, abs=0.01)
    assert all(0 < fit.standard_error < 0.002 for fit in fits.values())


@pytest.mark.slow
def test_scaling_exponents_up_to_four_million_positions() -> None:
    fits = fit_exponents(points(Sweep.SCALING, [32_768], [0]))
    assert fits["dense"].exponent == pytest.approx(2, abs=0.01)
    assert fits["sheaf"].exponent == pytest.approx(1, abs=0.01)


def test_the_fit_is_least_squares_on_logarithms() -> None:
    swept = points(Sweep.SCALING, [100, 300, 1000, 5000], [0, 1])
    (slope, _), covariance = np.polyfit(
        np.log([p.run.length for p in swept]), np.log([p.run.sites["sheaf"].edges for p in swept]), 1, cov=True
    )
    fit = fit_exponents(swept)["sheaf"]
    assert fit.exponent == pytest.approx(slope)
    assert fit.standard_error == pytest.approx(math.sqrt(covariance[0, 0]))


def test_one_length_has_no_exponent() -> None:
    assert fit_exponents([run_case(Case("length", 50, 50, 0, CONFIG))] * 2) == {}


def test_a_site_without_edges_has_no_exponent_and_no_waste() -> None:
    config = SimulationConfig(baseline_window=0)
    swept = points(Sweep.SCALING, [50, 100], [0], config)
    assert set(fit_exponents(swept)) == {"true", "dense", "sheaf"}
    assert set(spread(swept)["window"]) == {"edges", "coverage"}


def test_the_spread_over_seeds() -> None:
    swept = points(Sweep.SEEDS, [4096], list(range(6)))
    coverage = [point.run.sites["window"].coverage for point in swept]
    found = spread(swept)["window"]["coverage"]
    assert (found.mean, found.std) == pytest.approx((np.mean(coverage), np.std(coverage, ddof=1)))
    assert (found.min, found.max) == (min(coverage), max(coverage))
    assert found.std > 0
    assert spread(swept)["sheaf"]["coverage"].min == 1
    assert spread(swept[:1])["true"]["edges"].std == 0
    pair = spread(swept[:2])["window"]["coverage"]
    assert pair.std == pytest.approx(abs(coverage[0] - coverage[1]) / math.sqrt(2))


def test_coverage_falls_with_the_budget_and_waste_grows_beyond_it() -> None:
    swept = points(Sweep.BUDGET, [32_768], [0])
    for parameter, relation in {
        "window": "local",
        "kept_anchors": "instruction",
        "recent_anchors": "topic",
        "recent_mentions": "recurrence",
    }.items():
        needed = getattr(CONFIG.budget, parameter)
        sheaf = {p.value: p.run.sites["sheaf"] for p in swept if p.parameter == parameter}
        covered = [site.by_type[relation].coverage for value, site in sheaf.items() if value <= needed]
        assert covered == sorted(covered)
        assert covered[0] < 0.02
        assert covered[-1] == 1
        beyond = [site.waste for value, site in sheaf.items() if value >= needed]
        assert len(beyond) > 2
        assert all(b > a for a, b in pairwise(beyond))
