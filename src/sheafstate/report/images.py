"""The figures of a run as PNG files, from its result files."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from sheafstate.errors import InputError
from sheafstate.report import schema
from sheafstate.report.plots import draw_coverage_and_waste, draw_loss, draw_scaling
from sheafstate.report.schema import Passage, Simulation
from sheafstate.report.site_plot import draw_site
from sheafstate.report.svg import save_png

__all__ = ["write_images", "write_site_images"]

NamedFigure = tuple[str, Callable[[], Figure]]
"""Name of the file, and what draws it."""


def write_images(run: Path, out: Path) -> list[Path]:
    """Draw every figure that a run has results for.

    Args:
        run: folder with the result files of ``docs/files.md``.
        out: folder for ``loss.png``, ``coverage.png``, ``scaling.png`` and ``site-layer-N.png``.

    Returns:
        The files written.

    Raises:
        InputError: the run holds no result that can be drawn, or one that cannot be understood.
        OSError: a file cannot be read or written.
    """
    figures = list(_figures(run))
    if not figures:
        raise InputError(f"{run} holds no history.jsonl, simulation.json or site.json to draw")
    out.mkdir(parents=True, exist_ok=True)
    return _save(figures, out)


def write_site_images(passage: Passage, out: Path) -> list[Path]:
    """``site-layer-1.png`` and so on: one picture a layer.

    Raises:
        OSError: a file cannot be written.
    """
    return _save(_site_figures(passage), out)


def _save(figures: Iterable[NamedFigure], out: Path) -> list[Path]:
    written = []
    for name, draw in figures:
        written.append(out / name)
        save_png(draw(), written[-1])
    return written


def _figures(run: Path) -> Iterator[NamedFigure]:
    if (run / "history.jsonl").is_file():
        metrics = run / "metrics.json"
        references = schema.read_references(metrics) if metrics.is_file() else {}
        history = schema.read_history(run / "history.jsonl")
        yield "loss.png", partial(draw_loss, history, references)
    if (run / "simulation.json").is_file():
        yield from _simulation_figures(schema.read_simulation(run / "simulation.json"))
    if (run / "site.json").is_file():
        yield from _site_figures(schema.read_passage(run / "site.json"))


def _simulation_figures(simulation: Simulation) -> Iterator[NamedFigure]:
    yield "coverage.png", partial(draw_coverage_and_waste, simulation.main)
    if simulation.scaling:
        yield "scaling.png", partial(draw_scaling, simulation.scaling)


def _site_figures(passage: Passage) -> Iterator[NamedFigure]:
    for number in range(len(passage.layers)):
        yield f"site-layer-{number + 1}.png", partial(draw_site, passage, number)
