"""Tables of ``sheafstate estimate``."""

from typing import Any

from rich import box
from rich.table import Table

from sheafstate.cli.units import in_bytes, short

__all__ = ["costs_table", "heading", "parameters_table", "table"]


def heading(record: dict[str, Any], dtype: str) -> str:
    """What the model is, in two lines."""
    heads = ", ".join(f"{count}\N{NO-BREAK SPACE}{kind}" for kind, count in record["heads"].items())
    total = sum(record["heads"].values())
    return (
        f"[bold]{record['preset']}[/bold]: {record['num_layers']} layers of width {record['d_model']}, "
        f"vocabulary {record['vocab_size']:,}, {dtype}\n{total} heads a layer: {heads}"
    )


def table(*columns: str) -> Table:
    """An empty table; its first column is for names."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(columns):
        shown.add_column(name, justify="right" if number else "left", no_wrap=True)
    return shown


def parameters_table(record: dict[str, Any]) -> Table:
    """Counts of parameters, a row a site."""
    shown = table("site", "parameters", "non-embedding", "active")
    for site, figures in record["sites"].items():
        counted = figures["parameters"]
        shown.add_row(site, *(f"{counted[name]:,}" for name in ("total", "non_embedding", "active")))
    return shown


def costs_table(record: dict[str, Any]) -> Table:
    """Two rows a context, and how many times as much the dense site takes."""
    per_token = ("edges\na token", "FLOPs\na token", "FLOPs,\nnext token")
    shown = table("context", "site", "edges", per_token[0], "FLOPs", *per_token[1:], "state")
    sites = record["sites"]
    for rows in zip(*(figures["costs"] for figures in sites.values()), strict=True):
        for number, (site, costs) in enumerate(zip(sites, rows, strict=True)):
            context = costs["context"]
            counts = [costs["edges"], costs["edges"] / context, costs["flops"], costs["flops_per_token"]]
            cells = [*map(short, [*counts, costs["decode_flops"]]), in_bytes(costs["state_bytes"])]
            shown.add_row("" if number else f"{context:,}", site, *cells)
        shown.add_row("", "ratio", *_ratios(*rows), style="dim", end_section=True)
    return shown


def _ratios(ours: dict[str, Any], dense: dict[str, Any]) -> list[str]:
    names = ("edges", None, "flops", None, "decode_flops", "state_bytes")
    return ["" if name is None else f"× {short(dense[name] / ours[name])}" if ours[name] else "–" for name in names]
