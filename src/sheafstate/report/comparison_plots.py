"""A comparison's figures against length, position and state, from the file ``comparison.json`` alone."""

import statistics
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sheafstate.errors import InputError
from sheafstate.report.schema import read_object
from sheafstate.report.style import ROLES, new_figure, settings, site_colour, type_colour
from sheafstate.report.svg import save_png

__all__ = ["draw_comparison"]

Study = dict[str, Any]
Side = dict[str, Any]

FILE = "comparison.json"
DPI = 95
LENGTH, POSITION, RECALL, MEAN = "bits_per_byte_", "nats_from_", "accuracy", "accuracy_mean"
PEERS = {
    "llama": site_colour("dense"),
    "mamba2": type_colour("topic"),
    "gated-delta-net": type_colour("memory"),
}
OTHERS = [type_colour(name) for name in ("retrieval", "syntax", "instruction", "local", "sentence", "workspace")]
MARKERS = "osD^vPX*"


def draw_comparison(directory: Path) -> list[Path]:
    """Draw, beside the file in ``directory``, the figures that its studies have data for; return their paths.

    Raises:
        InputError: the file is not a comparison.
        OSError: it cannot be read, or a figure cannot be written.
    """
    path = directory / FILE
    record = read_object(path)
    if record.get("kind") != "comparison":
        raise InputError(f"{path} is not a comparison")
    drawn = []
    for study in record["studies"]:
        for suffix, draw in (("length", _by_length), ("position", _by_position), ("state", _by_state)):
            with settings():
                figure = draw(study)
                if figure is not None:
                    drawn.append(directory / f"{_file_name(study['name'])}-{suffix}.png")
                    save_png(figure, drawn[-1], DPI)
    return drawn


def _file_name(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _numbered(side: Side, prefix: str) -> list[tuple[int, list[float]]]:
    """Number behind the prefix and values of each figure that begins so, in rising order."""
    found = [(name.removeprefix(prefix), values) for name, values in side["figures"].items() if name.startswith(prefix)]
    return sorted((int(number), [v for v in values if v is not None]) for number, values in found if number.isdigit())


def _by_length(study: Study) -> Figure | None:
    """Bits per byte of every side in windows of several lengths, with the spread over seeds."""
    lines = {side["side"]: _numbered(side, LENGTH) for side in study["sides"]}
    if not any(len(points) > 1 for points in lines.values()):
        return None
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        x = [length for length, _ in points]
        mean = [statistics.fmean(values) for _, values in points]
        spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for _, values in points]
        axes.errorbar(x, mean, spread, label=_label(name), capsize=2, markersize=4, **_style(name, number))
    axes.set_xscale("log", base=2)
    _finish(axes, "Bits per byte of held-out text", "window, tokens", "bits per byte")
    if study.get("context"):
        axes.axvline(study["context"], color=ROLES["soft"].light, linewidth=0.8, linestyle=":")
    return figure


def _by_position(study: Study) -> Figure | None:
    """Nats a token by place in the context: whether more context goes on helping."""
    lines = {side["side"]: _numbered(side, POSITION) for side in study["sides"]}
    if not any(lines.values()):
        return None
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        x = [max(begin, points[1][0] // 2 if len(points) > 1 else 1) for begin, _ in points]
        axes.plot(x, [statistics.fmean(v) for _, v in points], label=_label(name), markersize=4, **_style(name, number))
    axes.set_xscale("log", base=2)
    _finish(axes, "Loss by position in the context", "first position of the group", "nats a token")
    return figure


def _by_state(study: Study) -> Figure | None:
    """Mean accuracy of a task against the numbers carried while decoding."""
    figure = new_figure(6.4, 4.2)
    axes, some = figure.subplots(), False
    for number, side in enumerate(study["sides"]):
        values = [value for value in _overall(side["figures"]) if value is not None]
        if not values or not side.get("state_elements"):
            continue
        some = True
        style = _style(side["side"], number) | {"linestyle": "none"}
        point = [side["state_elements"]], [100 * statistics.fmean(values)]
        axes.plot(*point, label=_label(side["side"]), markersize=6, **style)
    if not some:
        return None
    for point in study.get("published", []):
        style = _style(point["side"], 0) | {"marker": "o", "linestyle": "none", "markerfacecolor": "none"}
        label = f"{_label(point['side'])}, published"
        axes.plot([point["state_elements"]], [100 * point["accuracy"]], label=label, markersize=7, **style)
    axes.set_xscale("log")
    _finish(axes, "Accuracy against the state carried while decoding", "numbers of state", "accuracy, %")
    return figure


def _overall(figures: dict[str, list[float | None]]) -> list[float | None]:
    """The mean accuracy where there are several tests, else the only one there is."""
    single = [values for name, values in figures.items() if name.startswith(RECALL)]
    return figures.get(MEAN, single[0] if len(single) == 1 else [])


def _label(name: str) -> str:
    return "sheaf-state" if name == "base" else name.rpartition("/")[2] if name.startswith("peer") else name


def _style(name: str, number: int) -> dict[str, Any]:
    last = name.rpartition("/")[2]
    colour = site_colour("sheaf") if name == "base" else PEERS.get(last, OTHERS[number % len(OTHERS)])
    return {"color": colour, "marker": MARKERS[number % len(MARKERS)], "linestyle": "-" if name == "base" else "--"}


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10, color=ROLES["ink"].light, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))  # several points of one side are named once
    axes.legend(once.values(), once.keys(), fontsize=7, frameon=False)
