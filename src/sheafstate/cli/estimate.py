"""``sheafstate estimate``: what a model costs, from its configuration alone."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sheafstate.cli.estimate_tables import costs_table, heading, parameters_table
from sheafstate.cli.estimate_training import DEVICE_NAMES, TrainingPlan, show_training
from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.config import SheafStateConfig

__all__ = ["estimate_command"]

DEFAULT_PRESETS = ("tiny",)
DEFAULT_CONTEXTS = (512, 2048, 8192, 32_768)
MOST_POSITIONS = 2**40
DTYPES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
"""Name of a dtype → bytes of a number."""

PANEL = "Training (with --train)"

DENSE = {"site": "complete", "gluing": "plain", "output_gate": False}
"""What makes a configuration dense: every head reads every earlier position by softmax, and heads are concatenated,
without a gate."""


def estimate_command(
    preset: Annotated[
        list[str] | None,
        typer.Option(help="tiny, small or base; may be repeated.", show_default=" ".join(DEFAULT_PRESETS)),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(help="Parameters without embeddings, e.g. 350M or 7B: the presets' dial beyond them; repeatable."),
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
    train: Annotated[
        bool, typer.Option("--train", help="What training takes on several devices.", rich_help_panel=PANEL)
    ] = False,
    device: Annotated[
        str, typer.Option(help=f"{', '.join(DEVICE_NAMES)}, or TFLOP/s,GiB,GB/s.", rich_help_panel=PANEL)
    ] = "h100",
    devices: Annotated[int, typer.Option(help="Number of devices.", rich_help_panel=PANEL)] = 8,
    rows: Annotated[int, typer.Option(help="Rows of a device in a step.", rich_help_panel=PANEL)] = 1,
    utilization: Annotated[
        float, typer.Option(help="Share of the peak that is reached: your assumption.", rich_help_panel=PANEL)
    ] = 0.4,
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Run layers again rather than keep them.", rich_help_panel=PANEL)
    ] = False,
) -> None:
    """Count parameters, relations, operations and state bytes, beside the dense model of the same width.

    Nothing is built and nothing is measured: these are formulas of the
    configuration. The dense model has the same width, heads and feed-forward
    part, and every head attends to every earlier position.

    Edges are the relations of all layers, at most. A multiply and an add are
    two operations; training costs about three times a forward pass. "Next
    token" is one step of decoding after the context, and the state is what
    one row carries between such steps.

    With --train: tokens a second, memory and traffic of a step of AdamW in
    bfloat16, with whole copies on every device (DDP) and with everything
    sharded (FSDP).

    Example: sheafstate estimate --preset small --preset base --context 4096 --context 131072

    Example: sheafstate estimate --train --size 1.3B --size 7B --devices 64 --context 8192
    """
    if dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    contexts = context or list(DEFAULT_CONTEXTS)
    if min(contexts) < 1:
        raise InputError(f"context must be at least 1 position, not {min(contexts)}")
    if max(contexts) > MOST_POSITIONS:
        raise InputError(f"context must be at most {MOST_POSITIONS} positions, not {max(contexts)}")
    depths = _depths(preset or [], size or []) or _depths(list(DEFAULT_PRESETS), [])
    if train:
        plan = TrainingPlan(device, devices, rows, utilization, checkpointing)
        show_training(
            {name: _configuration(depth, settings or [])[0] for name, depth in depths.items()}, contexts, plan, as_json
        )
        return
    records = [_estimate(name, depth, settings or [], contexts, DTYPES[dtype]) for name, depth in depths.items()]
    if as_json:
        typer.echo(json.dumps({"dtype": dtype, "models": records}))
        return
    console = Console()
    for record in records:
        console.print(heading(record, dtype), highlight=False)
        console.print(parameters_table(record))
        console.print(costs_table(record))


def _estimate(name: str, depth: int, settings: list[str], contexts: list[int], dtype_bytes: int) -> dict[str, Any]:
    """The figures of a preset or size with its settings, and of the dense model beside it."""
    config, overrides = _configuration(depth, settings)
    dense, _ = _configuration(depth, settings, DENSE)
    return {
        "preset": name,
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


def _depths(presets: list[str], sizes: list[str]) -> dict[str, int]:
    """The dial of every preset and of every number of parameters."""
    from sheafstate.config import PRESETS

    for name in presets:
        if name not in PRESETS:
            hint = "; --size takes a number of parameters" if name[:1].isdigit() else ""
            raise InputError(f"preset must be one of {', '.join(PRESETS)}, not {name!r}{hint}")
    depths = {name: PRESETS[name] for name in presets}
    if sizes:
        from sheafstate.training.cost import depth_of

        depths |= {size: depth_of(_number(size)) for size in sizes}
    return depths


def _configuration(
    depth: int, settings: list[str], change: dict[str, Any] | None = None
) -> tuple["SheafStateConfig", dict[str, Any]]:
    """The configuration at a depth of the dial with its settings; and the settings."""
    from sheafstate.config import SheafStateConfig

    overrides = {}
    if settings:
        from sheafstate.training import parse_overrides

        overrides = parse_overrides(settings, SheafStateConfig.from_depth(depth).to_dict())
    return SheafStateConfig.from_depth(depth, **(overrides | (change or {}))), overrides


def _number(text: str) -> float:
    """``1.3B`` as a number."""
    scale = {"K": 1e3, "M": 1e6, "B": 1e9}.get(text[-1:].upper())
    try:
        return float(text[:-1]) * scale if scale else float(text)
    except ValueError:
        raise InputError(f"size must be a number of parameters such as 350M or 7B, not {text!r}") from None
