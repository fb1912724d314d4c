"""The plan of an experiment: tasks, sides and studies from a YAML file, and the runs that follow from them.

A *task* says what is learned and measured, a *side* which fields of the configuration differ from the task's model, and
a *study* which sides are trained on a task with which seeds. Sides are listed under the question that they answer and
are named ``question/answer``; ``base`` is the task's model itself.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from sheafstate.errors import InputError

__all__ = ["BASE", "QUICK", "Plan", "Published", "Run", "Study", "read_plan"]

BASE = "base"
QUICK = Path(__file__).with_name("quick.yaml")
"""The plan that comes with the package: every side, trained briefly."""
COLUMNS = ("d_ff", "state")
"""What a table says of a side where the plan says nothing."""
KNOWN_COLUMNS = ("parameters", "d_ff", "state", "elements", "speed")
_NOT_OF_A_RUN = ("steps", "tune_steps", "learning_rates")
"""Parts of a task that say which runs there are, and nothing of a single one."""
_FIELDS = {"name", "learning_rates", "tasks", "questions", "studies"}
_STUDY_FIELDS = {"name", "task", "sides", "seeds"}
"""And ``published``, where there is anything."""


@dataclass(frozen=True)
class Run:
    """One training with its measurement.

    Attributes:
        task: name of the task.
        side: name of the side.
        spec: the task without its model.
        model: fields of the configuration; ``preset`` and ``parameters`` (to which the feed-forward width is fitted)
            among them. With ``peer`` it is a model of transformers, and the fields are those of its shape.
        learning_rate: its peak.
        steps: optimiser steps.
        seed: of weights and data.
    """

    task: str
    side: str
    spec: dict[str, Any]
    model: dict[str, Any]
    learning_rate: float
    steps: int
    seed: int

    @property
    def key(self) -> str:
        """What the figures follow from, as a digest; names are left out, so that equal work is done once."""
        content = {name: value for name, value in asdict(self).items() if name not in ("task", "side")}
        content["spec"] = {name: value for name, value in self.spec.items() if name not in _NOT_OF_A_RUN}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Published:
    """A mean accuracy, a share, that somebody reports of the same task with so many numbers of state; not run here."""

    side: str
    state_elements: int
    accuracy: float


@dataclass(frozen=True)
class Study:
    """Sides trained on one task with the same seeds, and what others published of it."""

    name: str
    task: str
    sides: tuple[str, ...]
    seeds: tuple[int, ...]
    published: tuple[Published, ...] = ()


@dataclass(frozen=True)
class Plan:
    """An experiment.

    Attributes:
        name: of the experiment; its records are kept under it.
        learning_rates: the grid from which each side's rate is chosen, unless its task has one of its own.
        tasks: by name; ``model`` holds the base's fields of the configuration.
        sides: by name, the fields that differ from the task's model.
        studies: in the order in which they are run.
        columns: what a table says of a side beside its figures.
    """

    name: str
    learning_rates: tuple[float, ...]
    tasks: Mapping[str, Mapping[str, Any]]
    sides: Mapping[str, Mapping[str, Any]]
    studies: tuple[Study, ...]
    columns: tuple[str, ...] = COLUMNS

    def tuning(self, task: str, side: str) -> list[Run]:
        """The short runs, one a learning rate, from which a side's rate is chosen."""
        steps = self.tasks[task]["tune_steps"]
        rates = self.tasks[task].get("learning_rates", self.learning_rates)
        return [self._run(task, side, float(rate), steps, 0) for rate in rates]

    def full(self, task: str, side: str, learning_rate: float, seed: int) -> Run:
        """A run that counts."""
        return self._run(task, side, learning_rate, self.tasks[task]["steps"], seed)

    def work(self) -> Iterator[tuple[str, str, int]]:
        """Task, side and seed of every run that counts, in order, each once."""
        seen = set()
        for study in self.studies:
            for seed in study.seeds:
                for side in study.sides:
                    item = (study.task, side, seed)
                    if item not in seen:
                        seen.add(item)
                        yield item

    def _run(self, task: str, side: str, rate: float, steps: int, seed: int) -> Run:
        spec = {name: value for name, value in self.tasks[task].items() if name != "model"}
        base, changes = self.tasks[task]["model"], self.sides[side]
        if "peer" in changes:  # what is no model of ours takes nothing but the number of parameters
            model = dict(changes) if "parameters" in changes else {"parameters": base["parameters"]} | dict(changes)
        else:
            model = _merge(base, changes)
        return Run(task, side, spec, model, rate, steps, seed)


def read_plan(path: Path) -> Plan:
    """Read an experiment.

    Raises:
        InputError: the file is missing, is no YAML, or lacks or misnames a part.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or set(content) - {"columns"} != _FIELDS:
        raise InputError(f"{path} must have the parts {', '.join(sorted(_FIELDS))} and no others")
    try:
        sides: dict[str, dict[str, Any]] = {BASE: {}}
        for question, answers in content["questions"].items():
            sides |= {f"{question}/{answer}": dict(fields or {}) for answer, fields in answers.items()}
        tasks = {name: _task(name, content["tasks"]) for name in content["tasks"]}
        studies = tuple(_study(study, tasks, sides) for study in content["studies"])
        rates = tuple(float(rate) for rate in content["learning_rates"])
        columns = tuple(content.get("columns") or COLUMNS)
        plan = Plan(str(content["name"]), rates, tasks, sides, studies, columns)
        _check_runs(plan)
    except InputError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not the plan of an experiment: {error!r}") from error
    unknown = [name for name in columns if name not in KNOWN_COLUMNS]
    if unknown:
        raise InputError(f"{path} asks for a column {unknown[0]!r}; there are {', '.join(KNOWN_COLUMNS)}")
    return plan


def _check_runs(plan: Plan) -> None:
    """Make every run once: what a task or a side lacks is told before anything is trained."""
    for study in plan.studies:
        for side in study.sides:
            short = plan.tuning(study.task, side)
            if not short:
                raise InputError(f"task {study.task} has no learning rate")
            full = plan.full(study.task, side, short[0].learning_rate, 0)
            if len(short) > 1 and full.steps <= short[0].steps:
                raise InputError(f"task {study.task} must have more steps than tune_steps, by which a rate is chosen")


def _task(name: str, tasks: Mapping[str, Any]) -> dict[str, Any]:
    """A task; ``like`` names another one from which it takes what it does not say itself."""
    task = dict(tasks[name])
    other = task.pop("like", None)
    whole = _merge(_task(other, tasks), task) if other else task
    for part in ("kind", "model", "steps", "tune_steps"):
        if part not in whole:
            raise InputError(f"task {name} lacks {part}")
    _check_names(f"task {name}", whole)
    return whole


def _check_names(place: str, part: Mapping[Any, Any]) -> None:
    """YAML reads ``1024: …`` as a number, and a name must be a text."""
    for name, value in part.items():
        if not isinstance(name, str):
            raise InputError(f'{place} names a part {name!r}, which YAML does not read as text: write "{name}"')
        if isinstance(value, Mapping):
            _check_names(f"{place}, {name}", value)


def _merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``change``; mappings inside are merged too."""
    merged = dict(base)
    for name, value in change.items():
        inner = merged.get(name)
        merged[name] = _merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _study(study: Mapping[str, Any], tasks: Mapping[str, Any], sides: Mapping[str, Any]) -> Study:
    if set(study) - {"published"} != _STUDY_FIELDS:
        raise InputError(f"a study has the fields {', '.join(sorted(_STUDY_FIELDS))}, not {', '.join(sorted(study))}")
    if study["task"] not in tasks:
        raise InputError(f"study {study['name']} names the task {study['task']!r}; there are {', '.join(tasks)}")
    chosen: list[str] = []
    for pattern in study["sides"]:
        found = _matching(pattern, sides)
        if not found:
            raise InputError(f"study {study['name']} names {pattern!r}, and no side is called so")
        chosen += [side for side in found if side not in chosen]
    seeds = tuple(int(seed) for seed in study["seeds"])
    return Study(str(study["name"]), study["task"], tuple(chosen), seeds, _published(study.get("published") or {}))


def _published(given: Mapping[str, Mapping[int, float]]) -> tuple[Published, ...]:
    """Of every side that others ran: numbers of state → accuracy."""
    points = [(side, count, share) for side, found in given.items() for count, share in found.items()]
    return tuple(Published(str(side), int(count), float(share)) for side, count, share in points)


def _matching(pattern: str, sides: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [side for side in sides if fnmatchcase(side, pattern)]
