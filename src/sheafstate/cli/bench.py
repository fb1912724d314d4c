"""``sheafstate bench``: speed and memory beside Llama and Mamba-2 of transformers, on this machine."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sheafstate.cli.bench_tables import machine_line, memory_table, ratio_table, time_table
from sheafstate.errors import InputError

__all__ = ["bench_command"]

WORKS = {
    "train": (512, 2048, 8192),
    "prefill": (2048, 8192, 32_768),
    "decode": (128, 8192, 32_768),
    "memory": (2048, 8192, 32_768),
}
"""What can be measured → the contexts that are measured unless others are named."""

DEFAULT_SIDES = ("sheaf-state", "llama")
FILE = "bench.json"


def bench_command(
    work: Annotated[
        list[str] | None, typer.Option(help="train, prefill, decode or memory; may be repeated.", show_default="all")
    ] = None,
    context: Annotated[
        list[int] | None,
        typer.Option("--context", "-n", help="Tokens of a row; may be repeated.", show_default="by the work"),
    ] = None,
    side: Annotated[
        list[str] | None,
        typer.Option(
            help="sheaf-state, llama, mamba2 or complete (our code, every earlier position); may be repeated.",
            show_default=", ".join(DEFAULT_SIDES),
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help="tiny, small or base: our side; the others get as many parameters.")] = (
        "small"
    ),
    dtype: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    compiled: Annotated[bool, typer.Option("--compile", help="Every side by torch.compile.")] = False,
    repeats: Annotated[int, typer.Option(help="Turns that count; their median is taken.")] = 5,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the records and plots; what is there is kept.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Time training steps, prefill and decoding, and measure peak memory, in turns with other models.

    Every side has random weights and, within two per cent, as many parameters
    without embeddings as our preset. A ratio is the other side's median over
    ours: above 1 we are faster. The ceiling is that ratio if both sides ran at
    this machine's measured limits, so it depends on operations alone. The
    first calls, which allocate and compile, are told apart.

    A training step has 8,192 tokens at every context, forward, backward and
    AdamW. Decoding is one token of one row behind the context. Close what else
    runs: two timed runs at once spoil each other. The whole takes about half
    an hour on two cores.

    Example: sheafstate bench --work train --context 2048 --out runs/bench
    """
    works = _works(work or list(WORKS), context)
    if repeats < 1 or threads < 1:
        raise InputError("--repeats and --threads must be at least 1")
    sides = list(dict.fromkeys(["sheaf-state", *(side or DEFAULT_SIDES)]))
    record = _measure(works, sides, preset, dtype, compiled, repeats, threads, out)
    written = []
    if out is not None:
        from sheafstate.report.speed_plots import draw_speed

        written = [out / FILE, *draw_speed(out)]
    if as_json:
        typer.echo(json.dumps(record))
        return
    console = Console()
    console.print(machine_line(record["machine"]), highlight=False)
    tables = (time_table(record["times"]), ratio_table(record["ratios"]), memory_table(record["memory"]))
    for table in tables:
        if table.row_count:
            console.print(table)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _works(names: list[str], contexts: list[int] | None) -> dict[str, list[int]]:
    for name in names:
        if name not in WORKS:
            raise InputError(f"--work must be one of {', '.join(WORKS)}, not {name!r}")
    if contexts and min(contexts) < 1:
        raise InputError(f"--context must be at least 1, not {min(contexts)}")
    return {name: list(contexts or WORKS[name]) for name in names}


def _measure(
    works: dict[str, list[int]],
    sides: list[str],
    preset: str,
    dtype: str,
    compiled: bool,
    repeats: int,
    threads: int,
    out: Path | None,
) -> dict[str, Any]:
    """The whole record; with a directory it is written after every work, and what it holds is not measured again."""
    import torch

    from sheafstate.benchmarks.speed.book import Book
    from sheafstate.benchmarks.speed.works import Kind, Work

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    timed = [
        Work(Kind(name), context, dtype, compiled)
        for name, contexts in works.items()
        if name != "memory"
        for context in contexts
    ]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    try:
        book = Book(None if out is None else out / FILE, preset, threads)
        with Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bars:
            for work in timed:
                missing = book.missing(work, sides)
                bar = bars.add_task(str(work), total=len(missing) * (repeats + 2))
                book.time(work, missing, repeats, partial(bars.advance, bar))
            if "memory" in works:
                bar = bars.add_task("peak memory", total=len(works["memory"]) * len(sides))
                book.weigh(works["memory"], sides, dtype, partial(bars.advance, bar))
    finally:
        torch.set_num_threads(before)
    return book.record()
