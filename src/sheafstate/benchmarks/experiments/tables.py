"""Tables of an experiment from its records, in Markdown."""

import re
import statistics
from collections.abc import Mapping, Sequence

from sheafstate.benchmarks.experiments.plan import BASE, Plan, Study
from sheafstate.benchmarks.experiments.rates import search_rate
from sheafstate.benchmarks.experiments.records import Record
from sheafstate.benchmarks.pages import markdown_table

__all__ = ["tables"]

_NAMES = (
    (re.compile(r"^bits_per_byte_(\d+)$"), r"bits/byte at \1"),
    (re.compile(r"^accuracy_(\d+)_in_(\d+)$"), r"\1 pairs in \2, %"),
    (re.compile(r"^accuracy_(\d+)_(\w+)$"), r"\2 at \1, %"),
    (re.compile(r"^accuracy_(\d+)$"), r"all at \1, %"),
)


def tables(plan: Plan, records: Mapping[str, Record]) -> dict[str, str]:
    """The table of every study of which something was run, by the study's name."""
    drawn = {study.name: _table(plan, study, records) for study in plan.studies}
    return {name: text for name, text in drawn.items() if text}


def _table(plan: Plan, study: Study, records: Mapping[str, Record]) -> str:
    rows = {side: _runs(plan, study, side, records) for side in study.sides}
    rows = {side: runs for side, runs in rows.items() if runs}
    figures = list(dict.fromkeys(name for runs in rows.values() for run in runs.values() for name in run["figures"]))
    figures = [name for name in figures if name != "loss"]
    if not figures:
        return ""
    compared = figures[:2]
    head = ["side", "lr", *map(_heading, figures)]
    if BASE in rows:
        head += [f"Δ {_heading(name)}" for name in compared]
    head += ["d_ff", "state, KiB", "seeds"]
    lines = []
    for side, runs in rows.items():
        cells = [side, f"{_first(runs)['learning_rate']:g}"]
        cells += [_spread([_value(run, name) for run in runs.values()], name) for name in figures]
        if BASE in rows:
            cells += ["" if side == BASE else _difference(runs, rows[BASE], name) for name in compared]
        cells += [str(_first(runs)["d_ff"]), f"{_first(runs)['state_bytes'] / 1024:,.0f}", f"{len(runs)}"]
        lines.append(cells)
    return markdown_table(head, lines)


def _runs(plan: Plan, study: Study, side: str, records: Mapping[str, Record]) -> dict[int, Record]:
    """Records of a side's runs that count, by seed."""
    _, rate = search_rate(plan.tuning(study.task, side), records)
    if rate is None:
        return {}
    keys = {seed: plan.full(study.task, side, rate, seed).key for seed in study.seeds}
    return {seed: records[key] for seed, key in keys.items() if key in records and records[key]["figures"]}


def _first(runs: Mapping[int, Record]) -> Record:
    return next(iter(runs.values()))


def _value(run: Record, name: str) -> float:
    value: float = run["figures"].get(name, float("nan"))
    return 100 * value if name.startswith("accuracy") else value


def _digits(name: str) -> int:
    return 1 if name.startswith("accuracy") else 4


def _spread(values: Sequence[float], name: str) -> str:
    mean = f"{statistics.fmean(values):.{_digits(name)}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{_digits(name)}f}"


def _difference(runs: Mapping[int, Record], base: Mapping[int, Record], name: str) -> str:
    """Mean and spread of the differences of runs of one seed, which saw the same rows in the same order."""
    pairs = [_value(runs[seed], name) - _value(base[seed], name) for seed in runs if seed in base]
    if not pairs:
        return ""
    mean = f"{statistics.fmean(pairs):+.{_digits(name)}f}"
    return mean if len(pairs) < 2 else f"{mean} ± {statistics.stdev(pairs):.{_digits(name)}f}"


def _heading(name: str) -> str:
    for pattern, words in _NAMES:
        if pattern.match(name):
            return pattern.sub(words, name)
    return name
