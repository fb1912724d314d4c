"""The simulation's figures, drawn from its result file ``simulation.json`` alone.

``draw_simulation`` writes one PNG per part of the record: the sites side by side, scaling, spread over seeds,
sensitivity to every rate, and coverage against every budget. The form of the record is told in
``sheafstate.simulation.results``.
"""

import json
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sheafstate.errors import InputError
from sheafstate.report.style import ROLES, new_figure, settings, site_colour, type_colour

__all__ = ["budget_figure", "draw_simulation", "rates_figure", "scaling_figure", "seeds_figure", "sites_figure"]

Record = dict[str, Any]

RECORD_NAME = "simulation.json"
DPI = 95

COLOURS = {**{site: site_colour(site) for site in ("dense", "window", "sheaf")}, "true": ROLES["syntax"].light}
LABELS = {"dense": "dense", "window": "window", "sheaf": "sheaf", "true": "true edges"}
RELATION_COLOURS = {
    **{relation: type_colour(relation) for relation in ("local", "instruction", "topic")},
    "recurrence": type_colour("retrieval"),
}
BUDGET_SYMBOLS = {"window": "$w$", "kept_anchors": "$s$", "recent_anchors": "$r_a$", "recent_mentions": "$r$"}
INK, FAINT = ROLES["ink"].light, ROLES["grid"].light


def draw_simulation(directory: Path) -> list[Path]:
    """Draw every figure that the record in ``directory`` has data for, beside it, and return their paths.

    Raises:
        InputError: if the file is not a record of the simulation.
        OSError: if it cannot be read, or a figure cannot be written.
    """
    path = directory / RECORD_NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        record = None
    if not isinstance(record, dict) or record.get("kind") != "simulation":
        raise InputError(f"{path} is not a record of the simulation")
    figures: dict[str, Callable[[Record], Figure]] = {"sites": sites_figure}
    by_sweep = {"scaling": scaling_figure, "seeds": seeds_figure, "rates": rates_figure, "budget": budget_figure}
    figures |= {name: draw for name, draw in by_sweep.items() if name in record["sweeps"]}
    drawn = []
    for name, draw in figures.items():
        drawn.append(directory / f"{name}.png")
        partial = directory / f".{name}.png.partial"
        with settings():
            draw(record).savefig(partial, format="png", dpi=DPI)
        partial.replace(drawn[-1])
    return drawn


def sites_figure(record: Record) -> Figure:
    """Coverage, waste and edges per token of the sites in the first run, and coverage by relation."""
    run = record["runs"][0]
    sites, names = run["sites"], list(run["sites"])
    figure = new_figure(9, 6)
    figure.suptitle(_title(run), fontsize=11, color=INK)
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    for axes, key, title in zip(
        top.subplots(1, 3),
        ("coverage", "waste", "edges_per_token"),
        ("Coverage of the true edges", "Waste: edges that are not true", "Edges per token (log scale)"),
        strict=True,
    ):
        values = [sites[name][key] for name in names]
        text = "{:,.2f}" if key == "edges_per_token" else "{:.2%}"
        bars = axes.bar(names, [value or 0 for value in values], color=[COLOURS[name] for name in names], width=0.65)
        axes.bar_label(bars, ["none" if v is None else text.format(v) for v in values], fontsize=9, padding=2)
        if key == "edges_per_token":
            axes.set_yscale("log")
            axes.margins(y=0.12)
        else:
            _share_axis(axes)
        _finish(axes, title)
    axes = bottom.subplots()
    relations = list(sites[names[0]]["by_type"])
    for place, name in enumerate(names):
        rows = [sites[name]["by_type"][relation] for relation in relations]
        bars = axes.bar(
            [x + (place - 1) * 0.27 for x in range(len(relations))],
            [row["coverage"] or 0 for row in rows],
            width=0.25,
            color=COLOURS[name],
            label=name,
        )
        axes.bar_label(bars, ["–" if r["coverage"] is None else f"{r['coverage']:.1%}" for r in rows], fontsize=8)
    counts = [sites[names[0]]["by_type"][relation]["true_edges"] for relation in relations]
    axes.set_xticks(range(len(relations)), [f"{r}\n{c:,} true edges" for r, c in zip(relations, counts, strict=True)])
    _share_axis(axes)
    _finish(axes, "Coverage by relation")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def scaling_figure(record: Record) -> Figure:
    """Edges against length on logarithmic axes with the fitted exponents, and edges per token of the sparse sites."""
    sweep = record["sweeps"]["scaling"]
    lengths, edges = _edges_by_length(sweep["points"])
    figure = new_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    for name in ("dense", "window", "sheaf", "true"):
        fit = sweep["fits"].get(name)
        label = LABELS[name] if fit is None else f"{LABELS[name]}: $n^{{{fit['exponent']:.3f}}}$"
        left.plot(lengths, edges[name], "o-", color=COLOURS[name], label=label, markersize=4)
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xlabel("positions n")
    left.set_ylabel("edges")
    left.legend(frameon=False)
    _finish(left, "Edges against length, with fitted exponents")
    for name in ("window", "sheaf", "true"):
        per_token = [count / n for count, n in zip(edges[name], lengths, strict=True)]
        right.plot(lengths, per_token, "o-", color=COLOURS[name], markersize=4)
        right.annotate(
            f"{LABELS[name]} {per_token[-1]:.2f}",
            (lengths[-1], per_token[-1]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="right",
            color=COLOURS[name],
        )
    right.set_xscale("log", base=2)
    right.set_ylim(0, 1.15 * max(edges["window"][-1], edges["sheaf"][-1]) / lengths[-1])
    right.set_xlabel("positions n")
    _finish(right, f"Edges per token (dense at the end: {edges['dense'][-1] / lengths[-1]:,.0f})")
    return figure


def seeds_figure(record: Record) -> Figure:
    """What moves with the seed: one dot a seed, the mean as a line and one deviation to both sides as a band."""
    sweep = record["sweeps"]["seeds"]
    panels = [("window", "coverage"), ("window", "waste"), ("sheaf", "coverage"), ("sheaf", "waste")]
    figure = new_figure(10, 5.2)
    runs = [point["run"] for point in sweep["points"]]
    figure.suptitle(f"{len(runs)} seeds, {runs[0]['length']:,} positions", fontsize=11, color=INK)
    for axes, (site, key) in zip(figure.subplots(2, 2).flat, panels, strict=True):
        seeds = [run["seed"] for run in runs]
        values = [run["sites"][site][key] for run in runs]
        spread = sweep["spread"][site].get(key)
        if spread is not None:
            mean, std = spread["mean"], spread["std"]
            axes.axhspan(mean - std, mean + std, color=COLOURS[site], alpha=0.15, linewidth=0)
            axes.axhline(mean, color=COLOURS[site], linewidth=1)
            axes.plot(seeds, values, "o", color=COLOURS[site], markersize=4)
            reach = max(4 * std, 2e-4)
            axes.set_ylim(mean - reach, min(mean + reach, 1 + reach / 20))
            _finish(axes, f"{site} {key}: {mean:.3%} ± {std:.3%}")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=3))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("seed")
    return figure


def rates_figure(record: Record) -> Figure:
    """For every rate: coverage, waste and the least covered relation of the sheaf site, and the window's coverage."""
    panels = _by_parameter(record["sweeps"]["rates"]["points"])
    columns = 5
    rows = -(-len(panels) // columns)
    figure = new_figure(13, 2.5 * rows + 0.8)
    for axes, (parameter, points) in zip(
        figure.subplots(rows, columns, squeeze=False).flat, panels.items(), strict=False
    ):
        x = range(len(points))
        lines = {
            "sheaf coverage": ("sheaf", "o-", [_site(runs, "sheaf", "coverage") for runs in points.values()]),
            "its least covered relation": ("sheaf", "v:", [_least(runs) for runs in points.values()]),
            "sheaf waste": ("sheaf", "s--", [_site(runs, "sheaf", "waste") for runs in points.values()]),
            "window coverage": ("window", "o-", [_site(runs, "window", "coverage") for runs in points.values()]),
        }
        for label, (site, style, values) in lines.items():
            axes.plot(x, values, style, color=COLOURS[site], label=label, markersize=4, linewidth=1.4)
        axes.set_xticks(x, [f"{value:g}" for value in points])
        axes.tick_params(labelsize=7)
        chosen = record["config"]["rates"][parameter]
        if chosen in points:
            _mark_chosen(axes, list(points).index(chosen))
        _share_axis(axes)
        _finish(axes, parameter.replace("_", " "))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
    return figure


def budget_figure(record: Record) -> Figure:
    """For every budget: coverage of each relation and waste of the sheaf site."""
    panels = _by_parameter(record["sweeps"]["budget"]["points"])
    figure = new_figure(12, 3.9)
    for axes, (parameter, points) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        for relation, colour in RELATION_COLOURS.items():
            values = [_relation(runs, relation) for runs in points.values()]
            axes.plot(list(points), values, "o-", color=colour, label=f"{relation} coverage", markersize=4)
        covered = [_site(runs, "sheaf", "coverage") for runs in points.values()]
        wasted = [_site(runs, "sheaf", "waste") for runs in points.values()]
        axes.plot(list(points), covered, "-", color=INK, label="coverage of all", linewidth=2.2)
        axes.plot(list(points), wasted, "s--", color=INK, label="waste", markersize=4, linewidth=1.2)
        _mark_chosen(axes, record["config"]["budget"][parameter])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(f"degree {BUDGET_SYMBOLS[parameter]}")
        _share_axis(axes)
        _finish(axes, parameter.replace("_", " "))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=7, frameon=False)
    return figure


def _edges_by_length(points: Iterable[dict[str, Any]]) -> tuple[list[int], dict[str, list[float]]]:
    """Lengths, and for G* and every site the mean number of edges at each."""
    lengths: list[int] = []
    edges: dict[str, list[float]] = {name: [] for name in LABELS}
    for length, group in groupby(points, key=lambda point: point["run"]["length"]):
        runs = [point["run"] for point in group]
        lengths.append(length)
        edges["true"].append(sum(run["true_edges"] for run in runs) / len(runs))
        for site in runs[0]["sites"]:
            edges[site].append(sum(run["sites"][site]["edges"] for run in runs) / len(runs))
    return lengths, edges


def _by_parameter(points: Iterable[dict[str, Any]]) -> dict[str, dict[float, list[dict[str, Any]]]]:
    """parameter → value → its runs (one per seed)."""
    panels: dict[str, dict[float, list[dict[str, Any]]]] = {}
    for point in points:
        panels.setdefault(point["parameter"], {}).setdefault(point["value"], []).append(point["run"])
    return panels


def _site(runs: list[dict[str, Any]], site: str, key: str) -> float:
    return _mean([run["sites"][site][key] for run in runs])


def _relation(runs: list[dict[str, Any]], relation: str) -> float:
    return _mean([run["sites"]["sheaf"]["by_type"][relation]["coverage"] for run in runs])


def _least(runs: list[dict[str, Any]]) -> float:
    shares = [_relation(runs, relation) for relation in runs[0]["sites"]["sheaf"]["by_type"]]
    return min((share for share in shares if share == share), default=float("nan"))


def _mean(values: list[float | None]) -> float:
    """Mean of the known values; ``nan``, which leaves a gap in a line, if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def _title(run: dict[str, Any]) -> str:
    return f"{run['length']:,} positions, {run['true_edges']:,} true edges, seed {run['seed']}"


def _mark_chosen(axes: Axes, x: float) -> None:
    axes.axvline(x, color=FAINT, linewidth=6, zorder=0, label="value in the other panels")


def _share_axis(axes: Axes) -> None:
    axes.set_ylim(0, 1.12)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1))


def _finish(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10, color=INK, loc="left")
    axes.grid(axis="x", visible=False)
