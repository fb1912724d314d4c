"""The tables of ``docs/simulation.md`` are what the commands beside them print."""

import re
from pathlib import Path

import pytest

from sheafstate.simulation import SITES, Run, configure, simulate

TEXT = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
LENGTH = 32_768


def table(first_header: str) -> dict[str, list[str]]:
    """Rows of the table whose header starts like this, by their first cell."""
    lines = TEXT[TEXT.index(f"| {first_header}") :].split("\n\n", 1)[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows}


def percent(share: float) -> str:
    return f"{100 * share:.3f} %"


def plain(cell: str) -> str:
    """A figure without trailing zeros, which the text leaves out where they say nothing."""
    return re.sub(r"\.0+ %", " %", cell)


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(LENGTH)


def test_the_sites(run: Run) -> None:
    shown = table("site | edges")
    assert list(shown) == list(SITES)
    for name, site in run.sites.items():
        shares = (percent(site.coverage), percent(site.waste))
        assert shown[name] == [f"{site.edges:,}", *shares, f"{site.edges_per_token:,.3f}"]
    local = run.sites["sheaf"].by_type["local"].true_edges
    assert f"{run.true_edges:,} true edges of which {run.true_edges - local:,} are long" in TEXT


def test_the_relations(run: Run) -> None:
    shown = table("relation | true edges")
    sheaf = run.sites["sheaf"].by_type
    assert list(shown) == list(sheaf)
    for relation, row in sheaf.items():
        covered = [run.sites[name].by_type[relation].coverage for name in SITES]
        figures = [f"{row.true_edges:,}", *map(percent, covered), f"{row.edges:,}", percent(row.waste)]
        assert [plain(cell) for cell in shown[relation]] == [plain(cell) for cell in figures]


def test_the_presets() -> None:
    for preset, cells in table("preset").items():
        sheaf = simulate(LENGTH, 0, configure(preset)).sites["sheaf"]
        topic, recurrence = sheaf.by_type["topic"], sheaf.by_type["recurrence"]
        shares = (sheaf.coverage, sheaf.waste, topic.coverage, recurrence.coverage, recurrence.waste)
        assert cells == [f"{sheaf.edges:,}", *map(percent, shares)]
