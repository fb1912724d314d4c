"""Results of the simulation as records: made by one call, written as JSON and CSV, read by the plots.

The record's form (``simulation.json``)::

    {"kind": "simulation", "version", "commit", "machine", "preset", "config": {"rates", "budget", "baseline_window"},
     "runs": [run, …],
     "sweeps": {"scaling": {"points": [{"parameter", "value", "seconds", "run"}, …], "fits": {"true" | site: {…}}},
                "seeds":   {"points", "spread": {"true" | site: {"edges" | "coverage" | "waste": {…}}}},
                "rates":   {"points"}, "budget": {"points"}}}

with a run as ``run_as_dict`` gives it. A share that has no denominator is ``null``.
"""

import csv
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sheafstate.simulation.config import SimulationConfig
from sheafstate.simulation.measure import Run
from sheafstate.simulation.sweeps import Case, Point, Sweep, fit_exponents, plan, run_case, spread

__all__ = ["ALL_TYPES", "RECORD_NAME", "experiment", "run_as_dict", "write_results"]

RECORD_NAME = "simulation.json"
ALL_TYPES = "all"
"""In the CSV files, the type of a row that sums up a site."""

COLUMNS = (
    *("parameter", "value", "seconds", "length", "seed"),
    *("site", "type", "true_edges", "edges", "coverage", "waste", "edges_per_token"),
)

Track = Callable[[Sequence[Case], str], Iterable[Case]]
"""Passes cases on one by one; the string says what they belong to. A progress bar is one of these."""


def run_as_dict(run: Run) -> dict[str, Any]:
    """The run as plain values, for JSON::

        {"length", "seed", "true_edges",
         "sites": {"dense" | "window" | "sheaf": {"edges", "coverage", "waste", "edges_per_token", "by_type"}}}

    ``by_type`` maps each relation of G* to ``{"true_edges", "coverage", "edges", "waste", "edges_per_token"}``; the
    last three are ``null`` for the dense site, whose edges have no types.
    """
    return asdict(run)


def experiment(
    config: SimulationConfig,
    lengths: Sequence[int],
    seeds: Sequence[int],
    sweeps: Sequence[Sweep] = (),
    preset: str | None = None,
    track: Track = lambda cases, _: cases,
) -> dict[str, Any]:
    """Run every length with every seed, then the sweeps, and make the record of it all.

    Args:
        config: rates and budgets.
        lengths: positions of the sequences, at least one.
        seeds: at least one.
        sweeps: see ``sweeps.plan`` for what each takes from ``lengths`` and ``seeds``.
        preset: the name that ``config`` came from, for the record.
        track: wraps the cases of each part, to show progress.
    """
    cases = [Case("length", n, n, seed, config) for n in lengths for seed in seeds]
    runs = [run_case(case).run for case in track(cases, "runs")]
    swept = {}
    for sweep in dict.fromkeys(sweeps):
        points = [run_case(case) for case in track(plan(sweep, config, lengths, seeds), sweep.value)]
        swept[sweep.value] = {"points": [asdict(point) for point in points], **_summary(sweep, points)}
    return {
        "kind": "simulation",
        **_provenance(),
        "preset": preset,
        "config": config.as_dict(),
        "runs": [run_as_dict(run) for run in runs],
        "sweeps": swept,
    }


def write_results(record: dict[str, Any], out: Path) -> list[Path]:
    """Write ``simulation.json``, ``runs.csv`` and one CSV file per sweep into ``out``, each whole or not at all.

    Raises:
        OSError: if they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = [out / RECORD_NAME]
    _replace_file(written[0], json.dumps(record, indent=1, allow_nan=False) + "\n")
    tables = {"runs": [{"run": run} for run in record["runs"]]}
    tables |= {name: sweep["points"] for name, sweep in record["sweeps"].items()}
    for name, points in tables.items():
        written.append(out / f"{name}.csv")
        _write_csv(written[-1], (row for point in points for row in _rows(point)))
    return written


def _summary(sweep: Sweep, points: list[Point]) -> dict[str, Any]:
    if sweep is Sweep.SCALING:
        return {"fits": {name: asdict(fit) for name, fit in fit_exponents(points).items()}}
    if sweep is Sweep.SEEDS:
        figures = spread(points)
        return {"spread": {name: {k: asdict(v) for k, v in of.items()} for name, of in figures.items()}}
    return {}


def _rows(point: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per site for the whole, and one per site and relation."""
    run = point["run"]
    shared = {key: point.get(key) for key in ("parameter", "value", "seconds")}
    shared |= {"length": run["length"], "seed": run["seed"]}
    for site, measured in run["sites"].items():
        figures = {key: value for key, value in measured.items() if key != "by_type"}
        yield {**shared, "site": site, "type": ALL_TYPES, "true_edges": run["true_edges"], **figures}
        for relation, row in measured["by_type"].items():
            yield {**shared, "site": site, "type": relation, **row}


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    partial = _partial(path)
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(path)


def _replace_file(path: Path, text: str) -> None:
    partial = _partial(path)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _provenance() -> dict[str, Any]:
    from sheafstate import __version__  # not at the top: the package may import this module while it is being set up

    machine = {
        "system": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return {"version": __version__, "commit": _commit(), "machine": machine}


def _commit() -> str | None:
    """The commit of the source tree that this file is tracked in, if it is."""
    here = Path(__file__)
    for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
        try:
            answer = subprocess.run(
                ["git", "-C", str(here.parent), *arguments], capture_output=True, text=True, check=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return answer.stdout.strip()
