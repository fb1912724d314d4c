"""``python -m sheafstate.benchmarks.experiments run PLAN`` and ``… table PLAN …``.

``run`` executes the runs of a plan that have no record yet and appends a record each; stopped at any time it goes on
where it was. ``table`` prints the tables of plans from their records, or writes them into a page between its marks.
"""

import argparse
import json
import sys
from pathlib import Path

from sheafstate.errors import InputError

PLAN = Path("experiments/architecture.yaml")
WORK = Path("runs/experiments")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute what is missing")
    run.add_argument("plan", type=Path, nargs="?", default=PLAN)
    run.add_argument("--workers", type=int, default=2, help="runs side by side, one thread each")
    run.add_argument("--minutes", type=float, help="begin no further run after this long")
    table = commands.add_parser("table", help="draw the tables from the records")
    table.add_argument("plans", type=Path, nargs="*", default=[PLAN], metavar="plan")
    table.add_argument("--into", type=Path, help="a page whose marked tables are replaced")
    status = commands.add_parser("status", help="list what is missing")
    status.add_argument("plan", type=Path, nargs="?", default=PLAN)
    one = commands.add_parser("one", help="execute the one run that stands on standard input; prints its record")
    for command in (run, one):
        command.add_argument("--work", type=Path, default=WORK, help="folder for encoded text and logs")
    options = parser.parse_args(arguments)
    try:
        return {"run": _run, "table": _table, "status": _status, "one": _one}[options.command](options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _records_path(plan: Path) -> Path:
    return plan.parent / "records" / f"{plan.stem}.jsonl"


def _run(options: argparse.Namespace) -> int:
    from sheafstate.benchmarks.experiments.plan import read_plan
    from sheafstate.benchmarks.experiments.pool import run_missing

    made = run_missing(
        lambda: read_plan(options.plan),
        _records_path(options.plan),
        options.work,
        workers=options.workers,
        seconds=None if options.minutes is None else 60 * options.minutes,
        say=lambda line: print(line, flush=True),
    )
    print(f"{made} runs made")
    return 0


def _status(options: argparse.Namespace) -> int:
    from sheafstate.benchmarks.experiments.plan import read_plan
    from sheafstate.benchmarks.experiments.pool import missing
    from sheafstate.benchmarks.experiments.records import read_records

    records = read_records(_records_path(options.plan))
    for job in missing(read_plan(options.plan), records):
        print(job)
    print(f"{len(records)} records")
    return 0


def _one(options: argparse.Namespace) -> int:
    from sheafstate.benchmarks.experiments.execute import execute
    from sheafstate.benchmarks.experiments.plan import Run

    job = json.load(sys.stdin)
    print(json.dumps(execute(Run(**job["run"]), job["phase"], options.work)))
    return 0


def _table(options: argparse.Namespace) -> int:
    from sheafstate.benchmarks.experiments.plan import read_plan
    from sheafstate.benchmarks.experiments.records import read_records
    from sheafstate.benchmarks.experiments.tables import tables
    from sheafstate.benchmarks.pages import redraw

    drawn: dict[str, str] = {}
    for plan in options.plans:
        drawn |= tables(read_plan(plan), read_records(_records_path(plan)))
    redraw(options.into, drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
