"""The part of ``sheafstate estimate`` that tells what training takes."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from sheafstate.cli.estimate_tables import table
from sheafstate.cli.units import in_bytes, short
from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.config import SheafStateConfig
    from sheafstate.training.cost import Device, TrainingCost

__all__ = ["DEVICE_NAMES", "TrainingPlan", "show_training"]

DEVICE_NAMES = ("a100", "h100", "h200")


@dataclass(frozen=True)
class TrainingPlan:
    """On what, and how, a model is trained.

    Attributes:
        device: a name, or a peak in TFLOP/s, a memory in GiB and a bandwidth in GB/s with commas between.
        devices: how many.
        rows: of a device in a step.
        utilization: share of the peak that is reached.
        checkpointing: whether layers are run again rather than kept.
    """

    device: str
    devices: int
    rows: int
    utilization: float
    checkpointing: bool


def show_training(
    configs: dict[str, "SheafStateConfig"], contexts: list[int], plan: TrainingPlan, as_json: bool
) -> None:
    """Print a table a model, or one JSON object.

    Raises:
        InputError: something is impossible.
    """
    from sheafstate.training.cost import training_cost

    device = _device(plan.device)
    how = (device, plan.devices, plan.rows, plan.utilization, plan.checkpointing)
    found = {name: [training_cost(config, n, *how) for n in contexts] for name, config in configs.items()}
    if as_json:
        records = {name: [asdict(costs) for costs in rows] for name, rows in found.items()}
        typer.echo(json.dumps({"plan": asdict(plan), "contexts": contexts, "models": records}))
        return
    console = Console()
    for name, config in configs.items():
        console.print(_heading(name, config, found[name][0], plan), highlight=False)
        console.print(_costs(contexts, found[name], device))
    console.print(
        f"Peak {device.tflops:g} TFLOP/s, {device.gib:g} GiB and {device.gbytes:g} GB/s a device, of which "
        f"{plan.utilization:.0%} of the operations are assumed to be reached.\nFormulas, nothing measured; "
        "[red]red[/red] does not fit.",
        highlight=False,
    )


def _device(given: str) -> "Device":
    from sheafstate.training.cost import DEVICES, Device

    if given in DEVICES:
        return DEVICES[given]
    try:
        tflops, gib, gbytes = (float(number) for number in given.split(","))
    except ValueError:
        tflops = gib = gbytes = 0
    if not (0 < tflops < 1e9 and 0 < gib < 1e9 and 0 < gbytes < 1e9):
        raise InputError(
            f"device must be one of {', '.join(DEVICES)}, or TFLOP/s, GiB and GB/s like 989,80,450, not {given!r}"
        )
    return Device(tflops, gib, gbytes)


def _heading(name: str, config: "SheafStateConfig", costs: "TrainingCost", plan: TrainingPlan) -> str:
    how = ", layers run again" if plan.checkpointing else ""
    return (
        f"[bold]{name}[/bold]: {config.num_layers} layers of width {config.d_model}, {costs.parameters:,} parameters\n"
        f"{plan.devices} × {plan.device}, {plan.rows} rows a device and step, bfloat16{how}"
    )


def _costs(contexts: list[int], found: list["TrainingCost"], device: "Device") -> object:
    shown = table(
        "context", "kept for\nbackward", "", "tokens/s\na device", "seconds\na step", "memory\na device", "sent\na step"
    )
    for context, costs in zip(contexts, found, strict=True):
        ways = (
            ("DDP", costs.ddp_tokens_per_second, costs.ddp_bytes, costs.ddp_traffic),
            ("FSDP", costs.fsdp_tokens_per_second, costs.fsdp_bytes, costs.fsdp_traffic),
        )
        for number, (way, rate, memory, traffic) in enumerate(ways):
            size = in_bytes(memory)
            size = f"[red]{size}[/red]" if memory > device.gib * 2**30 else size
            place = ("", "") if number else (f"{context:,}", in_bytes(costs.activation_bytes))
            shown.add_row(
                *place, way, short(rate), short(costs.tokens / rate), size, in_bytes(traffic), end_section=bool(number)
            )
    return shown
