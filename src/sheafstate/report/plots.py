"""Figures from result files: training loss, scaling of edges, coverage and waste. Pure functions of records."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from sheafstate.errors import InputError
from sheafstate.report.glyphs import printable
from sheafstate.report.schema import History, Simulated
from sheafstate.report.style import ROLES, new_figure, settings, site_colour

__all__ = ["compact", "draw_coverage_and_waste", "draw_loss", "draw_scaling", "exponents", "smoothed"]

WIDTH, HEIGHT = 4.6, 3.3
TRUE = "true"


def draw_loss(history: History, references: dict[str, float] | None = None) -> Figure:
    """Training and validation loss, nats per token, over the tokens seen.

    Args:
        history: what the run logged.
        references: name → validation loss of models to compare with, drawn as lines across.

    Raises:
        InputError: if the run logged nothing that can be drawn.
    """
    losses = np.array([point.loss for point in history.train])
    tokens = np.array([point.tokens for point in history.train], np.float64)
    if not np.isfinite(losses).any():
        raise InputError("the history has no training loss that could be drawn")
    with settings():
        figure = new_figure(WIDTH, HEIGHT)
        axes = figure.subplots()
        axes.plot(tokens, losses, color=ROLES["soft"].light, alpha=0.3, linewidth=0.8)
        axes.plot(tokens, smoothed(losses), color=ROLES["soft"].light, label="training, smoothed")
        if history.validation:
            _plot_validation(axes, history, tokens)
        for name, value in (references or {}).items():
            axes.axhline(value, color=ROLES["dense"].light, linewidth=1.0, linestyle=(0, (4, 3)))
            place: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
            style: dict[str, Any] = {"color": ROLES["dense"].light, "ha": "right", "parse_math": False}
            axes.annotate(f"{printable(name)}: {value:.2f}", (1, value), (0, 4), **place, **style)
        axes.set(xlabel="tokens seen", ylabel="loss, nats per token")
        # room at the right for the last validation loss
        axes.set_xlim(0, 1.15 * max(float(tokens.max()), 1.0))
        axes.set_ylim(*_loss_range(losses, history, references))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
        axes.legend(frameon=False, loc="upper right")
    return figure


def _plot_validation(axes: Axes, history: History, tokens: np.ndarray) -> None:
    steps = [point.step for point in history.train]
    at = np.interp([point.step for point in history.validation], steps, tokens)
    values = [point.nats_per_token for point in history.validation]
    colour = ROLES["sheaf"].light
    axes.plot(at, values, "o-", color=colour, markersize=4, label="validation")
    if math.isfinite(values[-1]):
        style: dict[str, Any] = {"color": colour, "fontweight": "bold", "va": "center"}
        axes.annotate(f"{values[-1]:.3f}", (at[-1], values[-1]), (7, 0), textcoords="offset points", **style)


def _loss_range(losses: np.ndarray, history: History, references: dict[str, float] | None) -> tuple[float, float]:
    """From a little below the lowest to a little above the first, so that one spike does not flatten the curve."""
    lowest = [losses, [point.nats_per_token for point in history.validation], list((references or {}).values())]
    finite = np.concatenate([np.asarray(values, np.float64) for values in lowest])
    finite = finite[np.isfinite(finite)]
    low, high = float(finite.min()), float(np.quantile(finite, 0.995))
    margin = 0.08 * max(high - low, 1e-3)
    return low - 2 * margin, high + margin


def smoothed(values: np.ndarray, share: float = 0.05) -> np.ndarray:
    """Moving average over a window that is a share of the length and centred, so narrower near both ends.

    What is not finite is passed over; where a window holds nothing else, the result is NaN.
    """
    count = len(values)
    index = np.arange(count)
    reach = np.minimum(np.minimum(index, count - 1 - index), round(share * count / 2))
    finite = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    number = np.concatenate([[0], np.cumsum(finite)])
    seen = number[index + reach + 1] - number[index - reach]
    mean = (total[index + reach + 1] - total[index - reach]) / np.maximum(seen, 1)
    return np.where(seen > 0, mean, np.nan)


def draw_scaling(runs: Sequence[Simulated]) -> Figure:
    """Edges of every site over the length of the sequence, both logarithmic, with the fitted exponents.

    Raises:
        InputError: with fewer than two lengths.
    """
    fitted = exponents(runs)
    lengths = [run.length for run in runs]
    with settings():
        figure = new_figure(WIDTH, HEIGHT)
        axes = figure.subplots()
        for name, exponent in fitted.items():
            edges = [_edges(run, name) for run in runs]
            colour = ROLES["ink"].light if name == TRUE else site_colour(name)
            line = (0, (1, 2)) if name == TRUE else "-"
            label = f"{name} edges, exponent {exponent:.2f}"
            style: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 1.4, "markersize": 3}
            axes.plot(lengths, edges, marker="o", label=label, **style)
        axes.legend(frameon=False, loc="upper left", labelcolor="linecolor")
        axes.set(xscale="log", yscale="log", xlabel="length of the sequence", ylabel="edges")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
            axis.set_minor_locator(NullLocator())
    return figure


def exponents(runs: Sequence[Simulated]) -> dict[str, float]:
    """The exponent b of edges ∝ n^b by least squares in the logarithms: of the true edges and of every site.

    Raises:
        InputError: with fewer than two lengths.
    """
    lengths = [run.length for run in runs]
    if len(set(lengths)) < 2:
        raise InputError(f"scaling needs runs of at least two lengths, got {sorted(set(lengths))}")
    names = [TRUE, *runs[0].sites]
    logs = {name: np.log([max(_edges(run, name), 1) for run in runs]) for name in names}
    return {name: float(np.polyfit(np.log(lengths), values, 1)[0]) for name, values in logs.items()}


def _edges(run: Simulated, name: str) -> int:
    return run.true_edges if name == TRUE else run.sites[name].edges


def draw_coverage_and_waste(run: Simulated) -> Figure:
    """For every site of one run the share of the true edges it holds and the share of its edges that are not true."""
    sites = list(run.sites)
    with settings():
        figure = new_figure(WIDTH, HEIGHT)
        left, right = figure.subplots(1, 2, sharey=True)
        _bars(left, [run.sites[name].coverage for name in sites], sites)
        _bars(right, [run.sites[name].waste for name in sites], sites)
        left.set_title("coverage: true edges held", loc="left")
        right.set_title("waste: edges not true", loc="left")
        left.set_yticks(range(len(sites)), sites)
        left.invert_yaxis()
    return figure


def _bars(axes: Axes, shares: Sequence[float | None], sites: Sequence[str]) -> None:
    axes.barh(range(len(sites)), [share or 0.0 for share in shares], 0.56, color=[site_colour(name) for name in sites])
    for row, (share, name) in enumerate(zip(shares, sites, strict=True)):
        text = "none" if share is None else f"{100 * share:.2f} %"
        axes.text(0, row - 0.34, text, color=site_colour(name), ha="left", va="bottom", fontweight="bold")
    axes.set(xlim=(0, 1), ylim=(-0.9, len(sites) - 0.5))
    axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def compact(value: float) -> str:
    """A number with at most three digits and a suffix: 1,048,576 → ``1.05M``."""
    for scale, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g}{suffix}"
    return f"{value:.3g}"
