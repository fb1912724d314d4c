"""One self-contained page for a run: no script, no request, light or dark as the reader has it, fit for a phone."""

from collections.abc import Callable
from html import escape
from importlib import resources
from pathlib import Path

from sheafstate.errors import InputError
from sheafstate.report import schema, sections
from sheafstate.report.elements import paragraph
from sheafstate.report.style import ROLES

__all__ = ["REPORT_NAME", "render_report", "write_report"]

REPORT_NAME = "report.html"

SUBTITLE = (
    "A language model whose context is a learned sparse site of typed patches instead of the complete graph of tokens."
)


def write_report(run: Path, title: str | None = None) -> Path:
    """Make ``report.html`` in a run's folder from the result files there, whole or not at all.

    Args:
        run: the folder.
        title: heading of the page; the folder's name by default.

    Returns:
        The file written.

    Raises:
        InputError: if the folder holds no result file, or one that cannot be understood.
        OSError: if a file cannot be read or written.
    """
    path = run / REPORT_NAME
    partial = path.with_name(f".{REPORT_NAME}.partial")
    partial.write_text(render_report(run, title), encoding="utf-8")
    return partial.replace(path)


def render_report(run: Path, title: str | None = None) -> str:
    """The page as text; arguments and errors as :func:`write_report`."""
    if not run.is_dir():
        raise InputError(f"{run} is not the folder of a run")
    metrics_path = run / "metrics.json"
    metrics = schema.read_object(metrics_path) if metrics_path.is_file() else {}
    references = schema.read_references(metrics_path) if metrics else {}
    makers: dict[str, Callable[[Path], str]] = {
        "simulation.json": lambda path: sections.simulation_section(schema.read_simulation(path)),
        "history.jsonl": lambda path: sections.training_section(schema.read_history(path), references),
        "sample.json": lambda path: sections.sample_section(schema.read_sample(path)),
        "site.json": lambda path: sections.site_section(schema.read_passage(path)),
    }
    present = [name for name in makers if (run / name).is_file()]
    if not present and not metrics:
        raise InputError(f"{run} holds none of {', '.join(['metrics.json', *makers])}")
    body = "".join(makers[name](run / name) for name in present)
    if metrics:
        body += sections.figures_section(metrics)
    sources = ", ".join((["metrics.json"] if metrics else []) + present)
    return _page(title or f"Run {run.resolve().name}", sections.overview(metrics), body, sources)


def _page(title: str, top: str, body: str, sources: str) -> str:
    footer = paragraph(f"Made by sheafstate from {sources} of this run; it can be made again from them.")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · sheafstate</title>
<style>
{_style()}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p class="lead">{escape(SUBTITLE)}</p>
{top}</header>
<main>
{body}</main>
<footer class="soft">
{footer}</footer>
</body>
</html>
"""


def _style() -> str:
    """The roles' colours as variables, then the style sheet."""
    light = " ".join(f"--{role.name}: {role.light};" for role in ROLES.values())
    dark = " ".join(f"--{role.name}: {role.dark};" for role in ROLES.values())
    sheet = (resources.files(__package__) / "page.css").read_text(encoding="utf-8")
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{sheet}"
