"""``sheafstate report``: the page and the figures of a run, made again from its result files."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report_command"]


def report_command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page.", show_default="the folder's name")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder to write the figures into as PNG files, too.")] = None,
) -> None:
    """Make report.html, one page that needs nothing else, from the result files in a run's folder.

    Nothing is trained or simulated again: the page is made from metrics.json,
    history.jsonl, simulation.json, sample.json and site.json, those that are
    there.

    Example: sheafstate report runs/demo --images figures
    """
    from sheafstate.report.html import write_report
    from sheafstate.report.images import write_images

    written = [write_report(run, title)]
    if images is not None:
        written += write_images(run, images)
    for path in written:
        typer.echo(f"wrote {path}")
