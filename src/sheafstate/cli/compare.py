"""``sheafstate compare``: train this model and its peers on the same work, and draw what comes of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sheafstate.cli.compare_tables import length_table, position_table
from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.benchmarks.experiments.plan import Plan

__all__ = ["compare_command"]

FILE, RECORDS, WORK = "comparison.json", "records.jsonl", "work"


def compare_command(
    plan: Annotated[Path | None, typer.Argument(help="The comparison: a YAML file.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Every side on the packaged text, trained briefly.")] = False,
    out: Annotated[Path, typer.Option(help="Directory for logs, encoded text, the summary and the plots.")] = Path(
        "runs/compare"
    ),
    records: Annotated[
        Path | None,
        typer.Option(
            help="File of the records; what is there is not run again.", show_default="records.jsonl in --out"
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Trainings side by side, one thread each.")] = 2,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no further training after so long.", show_default="until all is done")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry", help="List what would be trained, and draw what there is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of tables.")] = False,
) -> None:
    """Train Sheaf-State and its peers on the same work, and show what each makes of it.

    A plan names tasks, sides and seeds. Every side has as many parameters
    without embeddings, reads the same tokens in the same order and is trained by
    the same optimiser; its learning rate is chosen from one grid by short runs.
    Peers are transformers' Llama and Mamba-2 and a gated delta net.

    Each training leaves one line in the records, and a comparison that was
    stopped goes on where it stood. A training that is stopped itself begins
    again.

    Example: sheafstate compare --quick --out runs/compare
    """
    if workers < 1 or (minutes is not None and minutes < 0):
        raise InputError("--workers must be at least 1 and --minutes not negative")
    path = _plan_path(plan, quick)
    summary, failure = _compare(path, records or out / RECORDS, out, workers, minutes, dry)
    from sheafstate.report.comparison_plots import draw_comparison
    from sheafstate.training.files import write_json

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / FILE, summary)
    written = [out / FILE, *draw_comparison(out)]
    if failure is not None:
        raise failure
    if as_json:
        import json

        typer.echo(json.dumps(summary))
        return
    console = Console()
    for table in _tables(summary):
        console.print(table)
    for file in written:
        console.print(f"wrote {file}", highlight=False, soft_wrap=True)


def _plan_path(plan: Path | None, quick: bool) -> Path:
    if (plan is None) != quick:
        raise InputError("give a plan, a YAML file, or --quick for the one that comes with the package")
    if plan is not None:
        return plan
    from sheafstate.benchmarks.experiments.plan import QUICK

    return QUICK


def _compare(
    path: Path, records: Path, out: Path, workers: int, minutes: float | None, dry: bool
) -> tuple[dict[str, Any], InputError | None]:
    """The summary, and why a training failed if one did: what the others found is written all the same."""
    from sheafstate.benchmarks.experiments.plan import read_plan
    from sheafstate.benchmarks.experiments.pool import missing, run_missing
    from sheafstate.benchmarks.experiments.records import read_records
    from sheafstate.benchmarks.experiments.summary import summarize

    console = Console(stderr=True)
    plan, failure = read_plan(path), None
    if dry:
        _list(console, plan, [str(job) for job in missing(plan, read_records(records))])
    else:
        try:
            with console.status("training; each finished run is told"):
                run_missing(
                    lambda: read_plan(path),
                    records,
                    out / WORK,
                    workers=workers,
                    seconds=None if minutes is None else 60 * minutes,
                    say=lambda line: console.print(line, highlight=False, soft_wrap=True),
                )
        except InputError as error:
            failure = error
    return summarize(plan, read_records(records)), failure


def _list(console: Console, plan: "Plan", jobs: list[str]) -> None:
    for job in jobs:
        console.print(job, highlight=False, soft_wrap=True)
    runs = len(list(plan.work()))
    console.print(f"{len(jobs)} trainings to begin with; {runs} count, after short ones that choose learning rates")


def _tables(summary: dict[str, Any]) -> list[Table]:
    made = []
    for study in summary["studies"]:
        made += [table for table in (length_table(study), position_table(study)) if table.row_count]
    return made
