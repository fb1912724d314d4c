"""The sections of a report, each made from one record."""

import math
from html import escape
from typing import Any

from sheafstate.errors import InputError
from sheafstate.report.elements import count, details, drawing, paragraph, section, share, shown, table, tiles
from sheafstate.report.plots import draw_coverage_and_waste, draw_loss, draw_scaling, exponents
from sheafstate.report.schema import History, Passage, Sample, Simulation
from sheafstate.report.site_plot import describe_site, draw_site
from sheafstate.report.svg import inline_svg

__all__ = ["figures_section", "overview", "sample_section", "simulation_section", "site_section", "training_section"]

LABELS = {
    "val_nats_per_token": "validation loss, nats per token",
    "val_bits_per_byte": "validation, bits per byte",
    "parameters": "parameters",
    "train_tokens": "tokens trained on",
    "seconds": "time",
}
"""Names in ``metrics.json`` that have a label; the first of these are the tiles on top."""


def overview(metrics: dict[str, Any]) -> str:
    """The figures that a reader looks for first."""
    return tiles((label, _metric(name, metrics[name])) for name, label in LABELS.items() if name in metrics)


def simulation_section(simulation: Simulation) -> str:
    """Dense, windowed and sheaf site over a sequence whose true dependencies are known."""
    run = simulation.main
    intro = (
        f"A sequence of {count(run.length)} positions with {count(run.true_edges)} known dependencies, and three ways "
        "to relate its positions. Coverage is the share of the true edges that a site holds, waste the share of its "
        "own edges that are not true. The sheaf site is built from what the sequence shows, never from the true edges."
    )
    rows = (
        (name, count(site.edges), f"{site.edges_per_token:,.2f}", share(site.coverage), share(site.waste))
        for name, site in run.sites.items()
    )
    figures = table(("site", "edges", "edges per token", "coverage", "waste"), rows)
    spoken = "; ".join(f"{name}: {share(s.coverage)} and {share(s.waste)}" for name, s in run.sites.items())
    bars = draw_coverage_and_waste(run)
    drawings = drawing(inline_svg(bars, "shares", f"Coverage and waste. {spoken}."), "Coverage and waste by site.")
    if simulation.scaling:
        drawings += _scaling(simulation)
    return section(
        "How much of a dense site is needed", paragraph(intro), figures, _pair(drawings), _by_type(simulation)
    )


def _scaling(simulation: Simulation) -> str:
    fitted = ", ".join(f"{name} {exponent:.2f}" for name, exponent in exponents(simulation.scaling).items())
    lengths = f"from {count(simulation.scaling[0].length)} to {count(simulation.scaling[-1].length)} positions"
    spoken = f"Edges over length, {lengths}, both logarithmic. Fitted exponents: {fitted}."
    return drawing(inline_svg(draw_scaling(simulation.scaling), "scaling", spoken), f"Edges {lengths}.")


def _by_type(simulation: Simulation) -> str:
    sites = simulation.main.sites
    types = list(dict.fromkeys(name for site in sites.values() for name in site.coverage_by_type))
    if not types:
        return ""
    rows = ((name, *(share(site.coverage_by_type.get(name)) for site in sites.values())) for name in types)
    return details("Coverage by type of dependency", table(("type", *sites), rows))


def training_section(history: History, references: dict[str, float]) -> str:
    """The loss curve."""
    try:
        figure = draw_loss(history, references)
    except InputError as error:
        return section("Training", paragraph(f"No curve: {error}."))
    last = history.train[-1]
    spoken = f"Training loss falls from {history.train[0].loss:.2f} to {last.loss:.2f} nats per token"
    if history.validation:
        spoken += f"; the last validation loss is {history.validation[-1].nats_per_token:.3f}"
    caption = f"Loss over {count(last.tokens)} tokens in {count(last.step)} steps; lower is better."
    return section(
        "Training", f'<div class="single">{drawing(inline_svg(figure, "loss", spoken + "."), caption)}</div>\n'
    )


def sample_section(sample: Sample) -> str:
    """Text that the model wrote."""
    intro = f"{count(len(sample.text))} characters that the model wrote after the prompt, which is shown in colour."
    text = f'<pre><span class="prompt">{escape(sample.prompt)}</span>{escape(sample.text)}</pre>\n'
    return section("What it writes", paragraph(intro), text)


def site_section(passage: Passage) -> str:
    """The site of a passage, a picture a layer, the last one open."""
    intro = (
        "Each layer relates a token to few earlier ones, and every relation has a type. Arcs lead from the marked "
        "token to those that it reads, in the colour of the type, stronger where the weight is larger. Below the "
        "text: where the model ends a patch of each interval type, and which address each token has; tokens of one "
        "address share a colour, and a dot marks the address of the marked token."
    )
    pictures = []
    for number in range(len(passage.layers)):
        svg = inline_svg(draw_site(passage, number), f"site{number}", describe_site(passage, number))
        caption = f"Layer {number + 1} of {len(passage.layers)}."
        is_last = number == len(passage.layers) - 1
        pictures.append(details(f"Layer {number + 1}", drawing(svg, caption, wide=True), is_open=is_last))
    return section("The site of a passage", paragraph(intro), *pictures)


def figures_section(metrics: dict[str, Any]) -> str:
    """Everything that ``metrics.json`` holds."""
    rows = ((LABELS.get(name, name.replace("_", " ")), _metric(name, value)) for name, value in metrics.items())
    return section("All figures", table(("figure", "value"), rows, numeric=False))


def _metric(name: str, value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name == "seconds" and is_number:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{value:.1f} s"
    if name in ("val_nats_per_token", "val_bits_per_byte") and is_number:
        return f"{value:.4f}"
    return shown(value)


def _pair(content: str) -> str:
    return f'<div class="pair">{content}</div>\n'
