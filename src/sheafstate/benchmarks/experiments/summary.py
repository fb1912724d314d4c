"""What a plan has found so far, as one object from which tables and plots are drawn."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sheafstate.benchmarks.experiments.plan import Plan, Study
from sheafstate.benchmarks.experiments.records import Record
from sheafstate.benchmarks.experiments.tables import runs_of

__all__ = ["summarize"]

FORM = 1


def summarize(plan: Plan, records: Mapping[str, Record]) -> dict[str, Any]:
    """``{"kind": "comparison", "form", "name", "studies": [{"name", "task", "context", "sides", "published"}, …]}``.

    A side is ``{"side", "learning_rate", "parameters", "active", "state_elements", "tokens", "tokens_per_second",
    "seeds", "figures"}``: ``figures`` maps a name to its value for each of the seeds. Sides without a run that counts
    are left out. What was published of the task is ``{"side", "state_elements", "accuracy"}``.
    """
    studies = [_study(plan, study, records) for study in plan.studies]
    return {"kind": "comparison", "form": FORM, "name": plan.name, "studies": [s for s in studies if s["sides"]]}


def _study(plan: Plan, study: Study, records: Mapping[str, Record]) -> dict[str, Any]:
    sides = []
    for name in study.sides:
        runs = runs_of(plan, study, name, records)
        if runs:
            sides.append({"side": name} | _side(runs))
    return {
        "name": study.name,
        "task": study.task,
        "context": plan.tasks[study.task].get("context"),
        "sides": sides,
        "published": [asdict(point) for point in study.published],
    }


def _side(runs: Mapping[int, Record]) -> dict[str, Any]:
    first = next(iter(runs.values()))
    names = list(dict.fromkeys(name for run in runs.values() for name in run["figures"]))
    return {
        "learning_rate": first["learning_rate"],
        "parameters": first["parameters"]["non_embedding"],
        "active": first["parameters"]["active"],
        "state_elements": first.get("state_elements"),
        "tokens": first["tokens"],
        "tokens_per_second": sorted(run["tokens_per_second"] for run in runs.values())[len(runs) // 2],
        "seeds": list(runs),
        "figures": {name: [run["figures"].get(name) for run in runs.values()] for name in names},
    }
