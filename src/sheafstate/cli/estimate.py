"""``sheafstate estimate``: what a model costs, from its configuration alone."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sheafstate.cli.units import in_bytes, short
from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.config import SheafStateConfig

__all__ = ["estimate_command"]

DEFAULT_PRESETS = ("tiny",)
DEFAULT_CONTEXTS = (512, 2048, 8192, 32_768)
MOST_POSITIONS = 2**40
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Name of a dtype → bytes of a number."""

DENSE = {"site": "complete", "gluing": "plain", "output_gate": False}
"""What makes a configuration dense: every head reads every earlier position by softmax, and heads are concatenated,
without a gate."""


def estimate_command(
    preset: Annotated[
        list[str] | None,
        typer.Option(help="tiny, small or base; may be repeated.", show_default=" ".join(DEFAULT_PRESETS)),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a field of the configuration, e.g. vocab_size=50257 or heads.local=4; may be repeated.",
        ),
    ] = None,
    context: Annotated[
        list[int] | None,
        typer.Option(
            "--context",
            "-n",
            help="Positions; may be repeated.",
            show_default=", ".join(map(str, DEFAULT_CONTEXTS)),
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(help=f"Of weights and state: {', '.join(DTYPES)}.")] = "float32",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count parameters, relations, operations and state bytes, beside the dense model of the same width.

    Nothing is built and nothing is measured: these are formulas of the
    configuration. The dense model has the same width, heads and feed-forward
    part, and every head attends to every earlier position.

    Edges are the relations of all layers, at most. A multiply and an add are
    two operations; training costs about three times a forward pass. "Next
    token" is one step of decoding after the context, and the state is what
    one row carries between such steps.

    Example: sheafstate estimate --preset small --preset base --context 4096 --context 131072
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    contexts = context or list(DEFAULT_CONTEXTS)
    if min(contexts) < 1:
        raise InputError(f"context must be at least 1 position, not {min(contexts)}")
    if max(contexts) > MOST_POSITIONS:
        raise InputError(f"context must be at most {MOST_POSITIONS} positions, not {max(contexts)}")
    records = [_estimate(name, settings or [], contexts, DTYPES[dtype]) for name in preset or DEFAULT_PRESETS]
    if as_json:
        typer.echo(json.dumps({"dtype": dtype, "models": records}))
        return
    console = Console()
    for record in records:
        console.print(_heading(record, dtype), highlight=False)
        console.print(_parameters_table(record))
        console.print(_costs_table(record))


def _estimate(preset: str, settings: list[str], contexts: list[int], dtype_bytes: int) -> dict[str, Any]:
    """The figures of a preset with its settings, and of the dense model beside it."""
    from sheafstate.config import SheafStateConfig

    overrides = {}
    if settings:
        from sheafstate.training import parse_overrides

        overrides = parse_overrides(settings, SheafStateConfig.from_preset(preset).to_dict())
    config = SheafStateConfig.from_preset(preset, **overrides)
    dense = SheafStateConfig.from_preset(preset, **(overrides | DENSE))
    return {
        "preset": preset,
        "settings": overrides,
        "num_layers": config.num_layers,
        "d_model": config.d_model,
        "heads": {kind.value: count for kind, count in config.covers.items()},
        "vocab_size": config.vocab_size,
        "sites": {
            config.site: _figures(config, contexts, dtype_bytes),
            "dense": _figures(dense, contexts, dtype_bytes),
        },
    }


def _figures(config: "SheafStateConfig", contexts: list[int], dtype_bytes: int) -> dict[str, Any]:
    from sheafstate.accounting import cost, parameters

    counted = parameters(config)
    return {
        "parameters": asdict(counted) | {"non_embedding": counted.non_embedding},
        "costs": [asdict(cost(config, context, dtype_bytes)) for context in contexts],
    }


def _heading(record: dict[str, Any], dtype: str) -> str:
    heads = ", ".join(f"{count}\N{NO-BREAK SPACE}{kind}" for kind, count in record["heads"].items())
    total = sum(record["heads"].values())
    return (
        f"[bold]{record['preset']}[/bold]: {record['num_layers']} layers of width {record['d_model']}, "
        f"vocabulary {record['vocab_size']:,}, {dtype}\n{total} heads a layer: {heads}"
    )


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table


def _parameters_table(record: dict[str, Any]) -> Table:
    table = _table("site", "parameters", "non-embedding", "active")
    for site, figures in record["sites"].items():
        counted = figures["parameters"]
        table.add_row(site, *(f"{counted[name]:,}" for name in ("total", "non_embedding", "active")))
    return table


def _costs_table(record: dict[str, Any]) -> Table:
    """Two rows a context, and how many times as much the dense site takes."""
    per_token = ("edges\na token", "FLOPs\na token", "FLOPs,\nnext token")
    table = _table("context", "site", "edges", per_token[0], "FLOPs", *per_token[1:], "state")
    sites = record["sites"]
    for rows in zip(*(figures["costs"] for figures in sites.values()), strict=True):
        for number, (site, costs) in enumerate(zip(sites, rows, strict=True)):
            context = costs["context"]
            counts = [costs["edges"], costs["edges"] / context, costs["flops"], costs["flops_per_token"]]
            cells = [*map(short, [*counts, costs["decode_flops"]]), in_bytes(costs["state_bytes"])]
            table.add_row("" if number else f"{context:,}", site, *cells)
        table.add_row("", "ratio", *_ratios(*rows), style="dim", end_section=True)
    return table


def _ratios(ours: dict[str, Any], dense: dict[str, Any]) -> list[str]:
    names = ("edges", None, "flops", None, "decode_flops", "state_bytes")
    return ["" if name is None else f"× {short(dense[name] / ours[name])}" if ours[name] else "–" for name in names]
