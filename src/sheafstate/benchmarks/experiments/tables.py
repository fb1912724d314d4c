"""Tables of an experiment from its records, in Markdown."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence

from sheafstate.benchmarks.experiments.plan import BASE, Plan, Study
from sheafstate.benchmarks.experiments.rates import search_rate
from sheafstate.benchmarks.experiments.records import Record
from sheafstate.benchmarks.experiments.relations import PREFIX, relation_table
from sheafstate.benchmarks.pages import markdown_table

__all__ = ["runs_of", "tables"]

_NAMES = (
    (re.compile(r"^bits_per_byte_(\d+)$"), r"bits/byte at \1"),
    (re.compile(r"^accuracy_(\d+)_in_(\d+)$"), r"\1 pairs in \2, %"),
    (re.compile(r"^accuracy_(\d+)_(\w+)$"), r"\2 at \1, %"),
    (re.compile(r"^accuracy_(\d+)$"), r"all at \1, %"),
    (re.compile(r"^accuracy_mean$"), "mean, %"),
)


POSITION = "nats_from_"
"""How the names of figures by position begin."""

COLUMNS: dict[str, tuple[str, Callable[[Record], str]]] = {
    "parameters": ("parameters", lambda run: f"{run['parameters']['non_embedding']:,}"),
    "d_ff": ("d_ff", lambda run: str(run["d_ff"])),
    "state": ("state, KiB", lambda run: f"{run['state_bytes'] / 1024:,.0f}"),
    "elements": ("state, numbers", lambda run: f"{run['state_elements']:,}"),
    "speed": ("tokens/s", lambda run: f"{run['tokens_per_second']:,.0f}"),
}
"""What a table can say of a side: name → heading, and its cell from a record."""


def tables(plan: Plan, records: Mapping[str, Record]) -> dict[str, str]:
    """The table of every study of which something was run, by the study's name.

    What was measured by place in the context, of relations, and what others published stands in tables of its own:
    ``NAME, by position``, ``NAME, relations`` and ``NAME, published``.
    """
    drawn = {}
    for study in plan.studies:
        rows = {side: runs_of(plan, study, side, records) for side in study.sides}
        rows = {side: runs for side, runs in rows.items() if runs}
        drawn[study.name] = _table(plan, rows)
        drawn[f"{study.name}, by position"] = _positions(rows)
        drawn[f"{study.name}, published"] = _published(study)
        drawn[f"{study.name}, relations"] = relation_table({side: _means(runs) for side, runs in rows.items()})
    return {name: text for name, text in drawn.items() if text}


Rows = Mapping[str, Mapping[int, Record]]
"""Side → seed → record."""


def _figures(rows: Rows) -> list[str]:
    """Names of what was measured, in the order of the records."""
    return list(dict.fromkeys(name for runs in rows.values() for run in runs.values() for name in run["figures"]))


def _positions(rows: Rows) -> str:
    """Nats a token at the positions of a context, from each power of two to the next."""
    figures = [name for name in _figures(rows) if name.startswith(POSITION)]
    if not figures:
        return ""
    begins = [int(name.removeprefix(POSITION)) for name in figures]
    head = ["side", *(f"from {begin:,}" for begin in begins)]
    lines = [[side, *(_mean(runs, name) for name in figures)] for side, runs in rows.items()]
    return markdown_table(head, lines, left=1)


def _published(study: Study) -> str:
    """Accuracies that others report; nothing where there are none."""
    rows = [[p.side, f"{p.state_elements:,}", f"{100 * p.accuracy:.1f}"] for p in study.published]
    return markdown_table(["published", "state, numbers", "mean, %"], rows, left=1) if rows else ""


def _means(runs: Mapping[int, Record]) -> dict[str, float]:
    """Means over the seeds that have a figure."""
    names = dict.fromkeys(name for run in runs.values() for name in run["figures"])
    return {name: statistics.fmean(r["figures"][name] for r in runs.values() if name in r["figures"]) for name in names}


def _mean(runs: Mapping[int, Record], name: str) -> str:
    values = [_value(run, name) for run in runs.values()]
    return f"{statistics.fmean(values):.3f}"


def _table(plan: Plan, rows: Rows) -> str:
    figures = [name for name in _figures(rows) if name != "loss" and not name.startswith((POSITION, PREFIX))]
    if not figures:
        return ""
    compared = figures[:2]
    head = ["side", "lr", *map(_heading, figures)]
    if BASE in rows:
        head += [f"Δ {_heading(name)}" for name in compared]
    head += [COLUMNS[name][0] for name in plan.columns] + ["seeds"]
    lines = []
    for side, runs in rows.items():
        cells = [side, f"{_first(runs)['learning_rate']:g}"]
        cells += [_spread([_value(run, name) for run in runs.values()], name) for name in figures]
        if BASE in rows:
            cells += ["" if side == BASE else _difference(runs, rows[BASE], name) for name in compared]
        cells += [COLUMNS[name][1](_first(runs)) for name in plan.columns] + [f"{len(runs)}"]
        lines.append(cells)
    return markdown_table(head, lines)


def runs_of(plan: Plan, study: Study, side: str, records: Mapping[str, Record]) -> dict[int, Record]:
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
