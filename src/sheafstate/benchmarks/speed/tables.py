"""Tables of a bench from its record, in Markdown."""

from typing import Any

from sheafstate.benchmarks.pages import markdown_table

__all__ = ["tables"]

Record = dict[str, Any]


def tables(record: Record, name: str) -> dict[str, str]:
    """Ratios, times and memory of a record, those that it has, each under ``name`` and what it is."""
    drawn = {
        "machine": _machine(record["machine"]),
        "ratios": _ratios(record["ratios"]),
        "times": _times(record["times"]),
        "memory": _memory(record["memory"]),
    }
    return {f"{name}, {what}": text for what, text in drawn.items() if text}


def _machine(machine: Record) -> str:
    head = ("threads", "products in float32, GFLOP/s", "in bfloat16, GFLOP/s", "copying, GB/s")
    rates = (f"{machine[rate]:.0f}" for rate in ("gflops", "gflops_bf16"))
    row = f"{machine['threads']}", *rates, f"{machine['gbytes']:.1f}"
    return markdown_table(head, [row], left=0)


def _ratios(ratios: list[Record]) -> str:
    head = ("work", "against", "times as fast", "ceiling", "target", "needed", "reached")
    rows = []
    for record in ratios:
        target, limit = record["target"], record["limit"]
        wanted = ["", "", ""] if target is None else [f"{target:.1f}", f"{limit:.2f}", "yes" if record["met"] else "no"]
        rows.append([record["name"], record["against"], f"{record['ratio']:.2f}", f"{record['ceiling']:.2f}", *wanted])
    return markdown_table(head, rows) if rows else ""


def _times(times: list[Record]) -> str:
    head = ("work", "side", "median, ms", "least, ms", "first call, s", "tokens/s", "of the floor, %")
    rows = [
        [
            record["name"],
            record["side"],
            _milliseconds(record["median_seconds"]),
            _milliseconds(min(record["seconds"])),
            f"{record['warmup_seconds'][0]:.2f}",
            f"{record['tokens_per_second']:,.0f}",
            f"{100 * record['share_of_floor']:.0f}",
        ]
        for record in times
    ]
    return markdown_table(head, rows) if rows else ""


def _milliseconds(seconds: float) -> str:
    """Three digits, or all that stand before the point."""
    value = 1000 * seconds
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _memory(memory: list[Record]) -> str:
    head = ("context", "side", "peak, MiB", "KiB a token")
    rows = [
        [
            f"{record['context']:,}",
            record["side"],
            f"{record['peak_mib']:,.0f}",
            f"{1024 * record['peak_mib'] / record['context']:,.1f}",
        ]
        for record in memory
    ]
    return markdown_table(head, rows) if rows else ""
