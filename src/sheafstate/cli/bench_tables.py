"""Tables of ``sheafstate bench``."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

__all__ = ["machine_line", "memory_table", "ratio_table", "time_table"]

Record = dict[str, Any]


def machine_line(machine: Record) -> str:
    """The measured limits of the machine."""
    return (
        f"{machine['threads']} threads; products: {machine['gflops']:,.0f} GFLOP/s in float32, "
        f"{machine['gflops_bf16']:,.0f} in bfloat16; copying: {machine['gbytes']:.1f} GB/s"
    )


def _table(title: str, columns: Sequence[str], left: int = 2) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    return table


def time_table(times: Sequence[Record]) -> Table:
    """Medians of every side, beside the first call; the last column is the share of the machine's limit."""
    columns = ("work", "side", "median", "first call", "tokens/s", "of floor")
    table = _table("Time", columns)
    for record in times:
        table.add_row(
            record["name"],
            record["side"],
            _seconds(record["median_seconds"]),
            _seconds(record["warmup_seconds"][0]),
            f"{record['tokens_per_second']:,.0f}",
            f"{record['share_of_floor']:.1%}",
        )
    return table


def ratio_table(ratios: Sequence[Record]) -> Table:
    """The other side's seconds over ours."""
    table = _table("Times as fast as the other side", ("work", "against", "ratio", "ceiling", "target", "reached"))
    for record in ratios:
        target = record["target"]
        met = {True: "yes", False: "no", None: ""}[record["met"]]
        table.add_row(
            record["name"],
            record["against"],
            f"{record['ratio']:.2f}",
            f"{record['ceiling']:.2f}",
            "" if target is None else f"{target:.1f}",
            met,
        )
    return table


def memory_table(memory: Sequence[Record]) -> Table:
    """Peak memory of a prefill above the process with the model in it."""
    table = _table("Peak memory of a prefill, above the loaded model", ("context", "side", "MiB", "KiB a token"), 0)
    for record in memory:
        share = 1024 * record["peak_mib"] / record["context"]
        table.add_row(f"{record['context']:,}", record["side"], f"{record['peak_mib']:,.0f}", f"{share:,.1f}")
    return table


def _seconds(value: float) -> str:
    return f"{value:.2f}s" if value >= 1 else f"{1000 * value:.3g}ms"
