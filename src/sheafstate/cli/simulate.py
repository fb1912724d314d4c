"""``sheafstate simulate``: how many true relations three sites hold, at what cost."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.simulation import Case, Sweep

__all__ = ["simulate_command"]

DEFAULT_LENGTH = 32_768
DEFAULT_SEED = 0
EVERY_SWEEP = "all"


def simulate_command(
    length: Annotated[
        list[int] | None,
        typer.Option(
            "--length", "-n", help="Positions of the sequence; may be repeated.", show_default=str(DEFAULT_LENGTH)
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed; may be repeated.", show_default=str(DEFAULT_SEED))
    ] = None,
    preset: Annotated[str, typer.Option(help="default, deep, starved or noisy.")] = "default",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace one rate or budget of the preset; may be repeated."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Vary more than one run does: scaling, seeds, rates, budget, or all; may be repeated."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory to write JSON, CSV and PNG files into.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure the dense, the windowed and the sheaf site on sequences whose true dependencies are known.

    A scaling sweep covers 1,024 to 4,194,304 positions, unless two lengths
    or more are given; a sweep over seeds takes 20 of them, unless two or more
    are given; the other sweeps run at the first length.

    With one length, one seed and no sweep, --json prints one object with
    "length", "seed", "true_edges" and "sites". Otherwise it prints the whole
    record: such objects under "runs", and the sweeps under "sweeps".

    Example: sheafstate simulate --length 32768 --sweep all --out runs/simulation
    """
    from sheafstate.cli.simulation_tables import record_tables
    from sheafstate.simulation import configure, experiment, write_results

    lengths, seeds = length or [DEFAULT_LENGTH], seed or [DEFAULT_SEED]
    config, sweeps = configure(preset, _pairs(overrides or [])), _sweeps(sweep or [])
    if out is not None:
        _require_writable(out)
    progress = _Progress()
    with progress.bars:
        record = experiment(config, lengths, seeds, sweeps, preset, progress.track)
    written = []
    if out is not None:
        from sheafstate.report.simulation_plots import draw_simulation

        written = [*write_results(record, out), *draw_simulation(out)]
    if as_json:
        single = len(record["runs"]) == 1 and not sweeps
        typer.echo(json.dumps(record["runs"][0] if single else record, allow_nan=False))
        return
    console = Console()
    for table in record_tables(record):
        console.print(table)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


class _Progress:
    """Bars on a terminal's standard error, one a part, that move by positions simulated; gone when all is done."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.bars = Progress(console=console, transient=True, disable=not console.is_terminal)

    def track(self, cases: "Sequence[Case]", name: str) -> "Iterator[Case]":
        task = self.bars.add_task(name, total=sum(case.length for case in cases))
        for case in cases:
            yield case
            self.bars.advance(task, case.length)


def _pairs(overrides: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for text in overrides:
        name, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--set takes KEY=VALUE, got {text!r}")
        pairs[name.strip()] = value.strip()
    return pairs


def _sweeps(names: Iterable[str]) -> "list[Sweep]":
    from sheafstate.simulation import Sweep

    known = [sweep.value for sweep in Sweep]
    chosen: list[Sweep] = []
    for name in names:
        if name not in (*known, EVERY_SWEEP):
            raise InputError(f"no sweep {name!r}; choose from {', '.join(known)} or {EVERY_SWEEP}")
        chosen += [Sweep(other) for other in known] if name == EVERY_SWEEP else [Sweep(name)]
    return chosen


def _require_writable(out: Path) -> None:
    """Find out before the work, not after it, that ``out`` cannot be written into."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a directory, and {out} is a file")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=out):
        pass
