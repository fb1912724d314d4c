"""The simulation's record as tables on the terminal."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from rich import box
from rich.table import Table

__all__ = ["record_tables", "relations_table", "sites_table"]

MISSING = "–"
"""Stands for a share that has no denominator."""


def record_tables(record: dict[str, Any]) -> Iterator[Table]:
    """All tables of a record, in the order in which they are read: the runs, then the sweeps."""
    for run in record["runs"]:
        yield sites_table(run)
        yield relations_table(run)
    sweeps = record["sweeps"]
    if "scaling" in sweeps:
        yield _scaling_table(sweeps["scaling"])
    if "seeds" in sweeps:
        yield _seeds_table(sweeps["seeds"])
    for part in ("rates", "budget"):
        if part in sweeps:
            yield _grid_table(part, sweeps[part]["points"], record["config"][part])


def sites_table(run: dict[str, Any]) -> Table:
    """The sites of one run beside one another."""
    title = f"{run['length']:,} positions, {run['true_edges']:,} true edges (seed {run['seed']})"
    table = _table(title, "site", "edges", "coverage %", "waste %", "edges per token")
    for name, site in run["sites"].items():
        shares = (_percent(site["coverage"]), _percent(site["waste"]))
        table.add_row(name, f"{site['edges']:,}", *shares, f"{site['edges_per_token']:,.3f}")
    return table


def relations_table(run: dict[str, Any]) -> Table:
    """Per relation of G*: true edges, coverage by every site, and the sheaf site's own edges with their waste."""
    coverages = [f"{name} %" for name in run["sites"]]
    table = _table("Coverage by relation", "relation", "true", *coverages, "sheaf edges", "waste %")
    for relation, sheaf in run["sites"]["sheaf"]["by_type"].items():
        held = [_percent(site["by_type"][relation]["coverage"]) for site in run["sites"].values()]
        table.add_row(relation, f"{sheaf['true_edges']:,}", *held, f"{sheaf['edges']:,}", _percent(sheaf["waste"]))
    return table


def _scaling_table(sweep: dict[str, Any]) -> Table:
    sites = list(sweep["points"][0]["run"]["sites"])
    table = _table("Scaling: edges by number of positions", "positions", "true", *sites, "seconds")
    for point in sweep["points"]:
        run = point["run"]
        edges = (f"{run['sites'][site]['edges']:,}" for site in sites)
        table.add_row(f"{run['length']:,}", f"{run['true_edges']:,}", *edges, f"{point['seconds']:.2f}")
    table.add_section()
    table.add_row("exponent", *(_exponent(sweep["fits"].get(name)) for name in ("true", *sites)), "")
    return table


def _seeds_table(sweep: dict[str, Any]) -> Table:
    table = _table(f"Spread over {len(sweep['points'])} seeds", "site", "figure", "mean", "deviation", "least", "most")
    for site, figures in sweep["spread"].items():
        for figure, spread in figures.items():
            show, unit = (_count, "") if figure == "edges" else (_percent, " %")
            table.add_row(site, figure + unit, *(show(spread[name]) for name in ("mean", "std", "min", "max")))
    return table


def _grid_table(part: str, points: list[dict[str, Any]], preset: dict[str, float]) -> Table:
    """The sheaf site under every value of every parameter, the preset's in bold; several seeds give their mean."""
    table = _table(f"Sheaf site by {part}", part, "coverage %", "waste %", "per token", "least covered %")
    for parameter, of_parameter in groupby(points, key=lambda point: point["parameter"]):
        table.add_row(parameter)
        for value, of_value in groupby(of_parameter, key=lambda point: point["value"]):
            sites = [point["run"]["sites"]["sheaf"] for point in of_value]
            coverage, waste, per_token = (
                _mean(site[key] for site in sites) for key in ("coverage", "waste", "edges_per_token")
            )
            table.add_row(
                f"  {value:g}",
                *(_percent(coverage), _percent(waste), f"{per_token:.3f}", _least_covered(sites)),
                style="bold" if value == preset[parameter] else "",
            )
        table.add_section()
    return table


def _least_covered(sites: list[dict[str, Any]]) -> str:
    """The relation that is covered least, and its coverage; nothing where everything is covered."""
    relations = {name: _mean(site["by_type"][name]["coverage"] for site in sites) for name in sites[0]["by_type"]}
    missing = {name: share for name, share in relations.items() if share is not None and share < 1}
    if not missing:
        return ""
    least = min(missing, key=lambda name: missing[name])
    return f"{least} {_percent(missing[least])}"


def _table(title: str, first: str, *rest: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for column in rest:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.3f}"


def _exponent(fit: dict[str, float] | None) -> str:
    return MISSING if fit is None else f"{fit['exponent']:.4f}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
