"""The figures of a run: equal to a twin on sets, and the published ones for the default preset."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.simulation import (
    SITES,
    Budget,
    Rates,
    SimulationConfig,
    configure,
    generate,
    run_as_dict,
    sheaf_site,
    simulate,
)

from .strategies import LENGTHS, SEEDS, budgets, rates

PUBLISHED_LENGTH = 32_768


def share(part: set, whole: set) -> float | None:
    return len(part) / len(whole) if whole else None


def by_sets(length: int, seed: int, config: SimulationConfig) -> dict:
    """A run's record from Python sets of pairs, every site listed."""
    sample = generate(length, config.rates, seed)

    def typed(edges) -> dict[str, set[tuple[int, int]]]:
        columns = zip(edges.later.tolist(), edges.earlier.tolist(), edges.types.tolist(), strict=True)
        found: dict[str, set[tuple[int, int]]] = {name: set() for name in edges.names}
        for t, p, code in columns:
            found[edges.names[code]].add((t, p))
        return found

    truth = typed(sample.truth)
    true = set().union(*truth.values())
    none: dict[str, set] = {name: set() for name in truth}
    window = {(t, p) for t in range(length) for p in range(max(0, t - config.baseline_window), t)}
    sites = {
        "dense": (None, {(t, p) for t in range(length) for p in range(t)}),
        "window": ({**none, "local": window}, window),
        "sheaf": (typed(sheaf_site(sample.observed, config.budget)), None),
    }
    measured = {}
    for name, (types, edges) in sites.items():
        edges = set().union(*types.values()) if edges is None else edges
        by_type = {
            relation: {
                "true_edges": len(own),
                "coverage": share(edges & own, own),
                "edges": None if types is None else len(types[relation]),
                "waste": None if types is None else share(types[relation] - true, types[relation]),
                "edges_per_token": None if types is None else len(types[relation]) / length,
            }
            for relation, own in truth.items()
        }
        measured[name] = {
            "edges": len(edges),
            "coverage": share(edges & true, true),
            "waste": share(edges - true, edges),
            "edges_per_token": len(edges) / length,
            "by_type": by_type,
        }
    return {"length": length, "seed": seed, "true_edges": len(true), "sites": measured}


@given(st.one_of(st.integers(2, 20), st.integers(21, 150)), rates(st.sampled_from([0.0, 0.3])), SEEDS, budgets)
def test_the_fast_figures_equal_those_of_sets(length: int, rates: Rates, seed: int, budget: Budget) -> None:
    config = SimulationConfig(rates, budget, baseline_window=5)
    assert run_as_dict(simulate(length, seed, config)) == by_sets(length, seed, config)


@pytest.mark.parametrize("seed", range(5))
def test_the_default_preset_reproduces_the_published_figures(seed: int) -> None:
    run = simulate(PUBLISHED_LENGTH, seed)
    dense, window, sheaf = (run.sites[name] for name in SITES)
    assert 67_000 <= run.true_edges <= 68_000
    assert 2_300 <= run.true_edges - run.sites["dense"].by_type["local"].true_edges <= 2_500
    assert dense.edges == 536_854_528
    assert dense.coverage == 1
    assert dense.waste == pytest.approx(0.9998, abs=1e-4)
    assert window.coverage == pytest.approx(0.965, abs=0.002)
    assert window.waste == pytest.approx(0.75, abs=0.005)
    assert sheaf.coverage == 1
    assert sheaf.waste == pytest.approx(0.325, abs=0.007)
    assert 100_000 <= sheaf.edges <= 101_000


@given(LENGTHS, SEEDS)
def test_the_default_budget_holds_everything_at_any_length(length: int, seed: int) -> None:
    assert simulate(length, seed).sites["sheaf"].coverage in (1, None)


@pytest.mark.parametrize("preset", ["deep", "starved", "noisy"])
def test_the_other_presets_show_what_they_are_for(preset: str) -> None:
    run = simulate(PUBLISHED_LENGTH, 0, configure(preset))
    sheaf, plain = run.sites["sheaf"], simulate(PUBLISHED_LENGTH, 0).sites["sheaf"]
    if preset == "deep":
        assert sheaf.coverage == 1
        assert sheaf.waste > plain.waste + 0.01
    else:
        assert sheaf.coverage < 0.998
    if preset == "starved":
        assert sheaf.by_type["topic"].coverage == pytest.approx(0.5, abs=0.06)
        assert sheaf.by_type["recurrence"].coverage == pytest.approx(8 / 15, abs=0.06)
        assert sheaf.by_type["instruction"].coverage == sheaf.by_type["local"].coverage == 1


MEASURED_ALONE = """
import json, time
from pathlib import Path
from sheafstate.simulation import simulate
start = time.perf_counter()
run = simulate(1_048_576)
seconds = time.perf_counter() - start
status = Path("/proc/self/status")
peak = None
if status.exists():
    peak = 1024 * next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
print(json.dumps([seconds, peak, run.sites["sheaf"].edges / run.length]))
"""


def test_a_million_positions_take_seconds_and_less_than_two_gigabytes() -> None:
    """The limits are 5 s and 2 GB on an idle machine; a busy one gets four times as long.

    Memory is what Linux gives: getrusage would count what the process that starts this one held at its fork.
    """
    answer = subprocess.run([sys.executable, "-c", MEASURED_ALONE], capture_output=True, text=True, check=True)
    seconds, peak, per_token = json.loads(answer.stdout)
    assert seconds < 20
    assert peak is None or peak < 2e9
    assert 3.07 < per_token < 3.08
