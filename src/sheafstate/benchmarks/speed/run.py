"""Measuring works: every work builds its sides, lets them take turns, and leaves one record a side."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import torch

from sheafstate.benchmarks.peers import non_embedding
from sheafstate.benchmarks.speed.floor import ceiling, floor_seconds, operations
from sheafstate.benchmarks.speed.machine import Machine
from sheafstate.benchmarks.speed.memory import peak_mib
from sheafstate.benchmarks.speed.sides import OURS, make_side
from sheafstate.benchmarks.speed.targets import SHARE_OF_CEILING, target_of
from sheafstate.benchmarks.speed.turns import Timing, take_turns
from sheafstate.benchmarks.speed.works import Work, prepare

__all__ = ["compare", "measure_memory", "measure_work"]

Record = dict[str, Any]


def measure_work(
    work: Work,
    sides: Sequence[str],
    preset: str,
    machine: Machine,
    repeats: int,
    tick: Callable[[], object] | None = None,
) -> list[Record]:
    """Time a work on every side; one record a side.

    Args:
        work: what is done.
        sides: who does it.
        preset: size of our side; the others have as many parameters.
        machine: measured limits, for the floor.
        repeats: turns that count.
        tick: called after every call.
    """
    models = {side: make_side(side, preset) for side in sides}
    sizes = {side: non_embedding(model) for side, model in models.items()}
    timings = take_turns({side: prepare(model, work) for side, model in models.items()}, repeats, tick=tick)
    del models
    gc.collect()
    torch.compiler.reset()
    return [_record(work, side, preset, machine, timing, sizes[side]) for side, timing in timings.items()]


def _record(work: Work, side: str, preset: str, machine: Machine, timing: Timing, size: int) -> Record:
    floor = floor_seconds(side, preset, work, machine)
    return {
        "work": asdict(work),
        "name": str(work),
        "side": side,
        "preset": preset,
        "non_embedding": size,
        "warmup_seconds": timing.warmup,
        "seconds": timing.seconds,
        "median_seconds": timing.median,
        "tokens_per_second": work.tokens / timing.median,
        "operations": operations(side, preset, work),
        "floor_seconds": floor,
        "share_of_floor": floor / timing.median,
        "ceiling": ceiling(side, preset, work, machine),
    }


def compare(records: Sequence[Record]) -> Iterator[Record]:
    """Every peer's seconds over ours, for the works that both did, with what is to be reached and what could be."""
    ours = {record["name"]: record for record in records if record["side"] == OURS}
    for record in records:
        mine = ours.get(record["name"])
        if mine is None or record["side"] == OURS:
            continue
        target = target_of(Work(**record["work"]), record["side"])
        ratio = record["median_seconds"] / mine["median_seconds"]
        limit = None if target is None else min(target, SHARE_OF_CEILING * record["ceiling"])
        yield {
            "name": record["name"],
            "against": record["side"],
            "ratio": ratio,
            "ceiling": record["ceiling"],
            "target": target,
            "limit": limit,
            "met": None if limit is None else ratio >= limit,
        }


def measure_memory(
    contexts: Sequence[int], sides: Sequence[str], preset: str, dtype: str, tick: Callable[[], object] | None = None
) -> list[Record]:
    """Peak memory of a prefill, each in a process of its own."""
    records = []
    for context in contexts:
        for side in sides:
            peak = peak_mib(side, preset, context, dtype, torch.get_num_threads())
            records.append({"context": context, "side": side, "preset": preset, "dtype": dtype, "peak_mib": peak})
            if tick:
                tick()
    return records
