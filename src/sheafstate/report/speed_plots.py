"""Time and memory against length, log by log, from the result file ``bench.json`` alone."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sheafstate.errors import InputError
from sheafstate.report.schema import read_object
from sheafstate.report.style import ROLES, new_figure, settings, site_colour, type_colour
from sheafstate.report.svg import save_png

__all__ = ["draw_speed", "memory_figure", "time_figure"]

Record = dict[str, Any]

FILE = "bench.json"
DPI = 95
COLOURS = {
    "sheaf-state": site_colour("sheaf"),
    "llama": site_colour("dense"),
    "mamba2": type_colour("topic"),
    "complete": type_colour("retrieval"),
}
KINDS = {"train": "Training step of 8,192 tokens", "prefill": "Prefill", "decode": "Decoding one token"}


def draw_speed(directory: Path) -> list[Path]:
    """Draw the figures that the record in ``directory`` has data for, beside it, and return their paths.

    Raises:
        InputError: the file is not a record of a bench.
        OSError: it cannot be read, or a figure cannot be written.
    """
    path = directory / FILE
    record = read_object(path)
    if record.get("kind") != "bench":
        raise InputError(f"{path} is not a record of a bench")
    drawn = []
    for name, draw, data in (("time", time_figure, record["times"]), ("memory", memory_figure, record["memory"])):
        if not data:
            continue
        drawn.append(directory / f"{name}.png")
        with settings():
            save_png(draw(data), drawn[-1], DPI)
    return drawn


def time_figure(times: list[Record]) -> Figure:
    """Median seconds of every side against the context, one panel a kind of work."""
    kinds = [kind for kind in KINDS if any(r["work"]["kind"] == kind for r in times)]
    figure = new_figure(4.2 * len(kinds), 3.6)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for r in times:
            if r["work"]["kind"] == kind:
                mode = " compiled" if r["work"]["compiled"] else ""
                lines[f"{r['side']} {r['work']['dtype']}{mode}"].append((r["work"]["context"], r["median_seconds"]))
        _draw(axes, lines, KINDS[kind], "seconds")
    return figure


def memory_figure(memory: list[Record]) -> Figure:
    """Peak memory of a prefill against the context."""
    figure = new_figure(5, 3.6)
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for r in memory:
        lines[f"{r['side']} {r['dtype']}"].append((r["context"], r["peak_mib"]))
    _draw(figure.subplots(), lines, "Peak memory of a prefill", "MiB above the loaded model")
    return figure


def _draw(axes: Axes, lines: dict[str, list[tuple[int, float]]], title: str, label: str) -> None:
    for name, points in lines.items():
        x, y = zip(*sorted(points), strict=True)
        style = "--" if "bf16" in name else ":" if "compiled" in name else "-"
        axes.plot(x, y, style, marker="o", markersize=4, color=COLOURS.get(name.split()[0]), label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(title, fontsize=10, color=ROLES["ink"].light, loc="left")
    axes.set_xlabel("context, tokens")
    axes.set_ylabel(label)
    axes.legend(fontsize=7, frameon=False)
