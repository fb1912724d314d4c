"""``sheafstate demo``: the whole way once, from the simulation to a trained model and the page about it."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sheafstate.cli.arguments import MOST_SEED, MOST_THREADS
from sheafstate.errors import InputError

__all__ = ["demo_command"]

OUT = Path("runs/demo")
STEPS = 750
USEFUL_THREADS = 4
"""A model this small gains nothing from more."""


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder that everything is left in.")] = OUT,
    steps: Annotated[int, typer.Option(help="Steps of the training, 2,048 bytes each.")] = STEPS,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", min=0, max=MOST_SEED)] = 0,
    threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads.", min=1, max=MOST_THREADS, show_default=f"one a core, at most {USEFUL_THREADS}"
        ),
    ] = None,
) -> None:
    """Simulate, train a small model on Shakespeare, let it write, and show how it relates the tokens of a passage.

    Takes about four minutes on two cores and needs nothing from the network.
    Stopped with Ctrl-C, the next call goes on from the last checkpoint; when
    it was done, the next call does it all anew. In --out it replaces what an
    earlier demo left there and touches nothing else.

    Example: sheafstate demo --out runs/demo
    """
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    from sheafstate.cli import demo_stages as stages
    from sheafstate.cli.demo_folder import claim
    from sheafstate.cli.demo_plan import DemoPlan

    plan = DemoPlan(out=out, steps=steps, seed=seed, threads=threads or _threads())
    console, began = Console(highlight=False), time.monotonic()
    resume = claim(out, plan.training())
    try:
        stages.simulate(plan, console)
        stages.train_model(plan, console, resume)
        stages.write_text(plan, console)
        stages.show_site(plan, console)
        stages.report(plan, console, time.monotonic() - began, _program())
    except KeyboardInterrupt:
        console.print("\nStopped. The next call goes on from the last checkpoint, if there is one.")
        raise


def _threads() -> int:
    if "OMP_NUM_THREADS" in os.environ and os.environ["OMP_NUM_THREADS"].isdecimal():
        return int(os.environ["OMP_NUM_THREADS"])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, USEFUL_THREADS)


def _program() -> str:
    """What to type to call this program again: not only its name where that is not on the path."""
    return "sheafstate" if shutil.which("sheafstate") else os.path.relpath(sys.argv[0])
