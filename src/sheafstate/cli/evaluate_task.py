"""``sheafstate evaluate --task``: a test of lm-evaluation-harness, a record of it, and the figures of known models."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sheafstate.errors import InputError

__all__ = ["evaluate_on_task"]

FOLDER = "tasks"
"""Where a run keeps the records of its tests."""


def evaluate_on_task(
    checkpoint: Path,
    task: str,
    data: str | None,
    *,
    limit: int | None,
    batch_size: int,
    seed: int,
    mark: bool,
    as_json: bool,
) -> None:
    """Put a checkpoint to a test, show the figures, and write ``tasks/NAME.json`` beside it if it is a folder.

    Raises:
        InputError: lm_eval is not installed, or the test, its data or the checkpoint cannot be had.
    """
    from sheafstate.evaluation import is_packaged
    from sheafstate.evaluation.tasks import OFFLINE

    offline = OFFLINE.get(task)
    if offline is not None and data is None:
        raise InputError(f"--task {task} needs --data: the file {offline.file}, or the folder that holds it")
    if offline is None and data is not None:
        raise InputError(f"--data is for the tasks {' and '.join(OFFLINE)}: lm_eval finds the data of {task} itself")
    configs = offline.configs(data) if offline is not None and data is not None else None
    from sheafstate.evaluation.harness import SheafStateLM, run_task  # after the data, for this import takes seconds

    began = time.perf_counter()
    with _bar(task) as progress:
        lm = SheafStateLM(str(checkpoint), batch_size=batch_size, add_bos_token=mark, progress=progress)
        figures = run_task(task, lm, configs=configs, limit=limit, seed=seed)
    options = {"data": data, "limit": limit, "batch_size": batch_size, "seed": seed, "mark": mark}
    record = {"kind": "task", "task": task, "checkpoint": str(checkpoint), **options, **figures}
    record |= {"seconds": round(time.perf_counter() - began, 3), **_provenance(checkpoint)}
    typer.echo(json.dumps(record)) if as_json else Console().print(_table(record, offline))
    if not is_packaged(checkpoint):
        _write(checkpoint / FOLDER / f"{Path(task).stem}.json", record)


def _provenance(checkpoint: Path) -> dict[str, Any]:
    """The model's configuration, versions, machine and commit."""
    from sheafstate.evaluation import checkpoint_folder
    from sheafstate.evaluation.harness import harness_version
    from sheafstate.training.export import describe_machine
    from sheafstate.training.files import read_json

    machine = describe_machine()
    machine["versions"] |= {"lm_eval": harness_version()}
    return {"config": read_json(checkpoint_folder(checkpoint) / "config.json"), **machine}


def _write(path: Path, record: dict[str, Any]) -> None:
    from sheafstate.training.files import write_json

    path.parent.mkdir(exist_ok=True)
    write_json(path, record)


@contextmanager
def _bar(task: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on the standard error, if somebody watches it."""
    console = Console(file=sys.stderr)  # this very stream, as lm_eval's own bars are kept from it meanwhile
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as drawn:
        line = drawn.add_task(task, total=None)
        yield lambda done, total: drawn.update(line, completed=done, total=total)


def _table(record: dict[str, Any], offline: Any) -> Table:
    part = "" if record["limit"] is None else f", at most {record['limit']:,} a subtask"
    table = Table(title=f"{record['task']}: {record['examples']:,} examples{part}")
    results: dict[str, dict[str, float]] = record["results"]
    metrics = offline.metrics if offline else _metrics(results)
    table.add_column("model" if offline else "task")
    for metric in metrics:
        table.add_column(metric, justify="right")
    for name, figures in results.items():
        label = record["checkpoint"] if offline else name
        table.add_row(label, *(_shown(figures, metric) for metric in metrics))
    for peer, figures in (offline.peers if offline else {}).items():
        table.add_row(peer, *(_shown(figures, metric) for metric in metrics), style="dim")
    if offline:
        table.caption = f"dim: published, {offline.source}; seconds here: {record['seconds']:,.0f}"
    return table


def _metrics(results: dict[str, dict[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for figures in results.values() for name in figures if "_stderr" not in name))


def _shown(figures: dict[str, float], metric: str) -> str:
    """A figure with its standard error; shares in percent."""
    value, error = figures.get(metric), figures.get(f"{metric}_stderr")
    if value is None:
        return ""
    scale, form, unit = (100, ".1f", " %") if metric.startswith("acc") else (1, ",.4g", "")
    beside = "" if error is None else f" ± {error * scale:{form}}"
    return f"{value * scale:{form}}{beside}{unit}"
