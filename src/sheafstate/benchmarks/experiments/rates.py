"""Which learning rate a side gets: a search in the grid by short runs."""

import math
from collections.abc import Mapping, Sequence

from sheafstate.benchmarks.experiments.plan import Run
from sheafstate.benchmarks.experiments.records import Record

__all__ = ["search_rate"]


def search_rate(runs: Sequence[Run], records: Mapping[str, Record]) -> tuple[list[Run], float | None]:
    """What is still to be run to choose a learning rate, and the rate once nothing is.

    The loss is taken to have one minimum over the grid: the two highest rates are tried, and a lower one only while the
    lowest tried is the best. A rate whose neighbours on both sides have been tried and are worse is that minimum, so
    that a grid that is extended upwards asks nothing more of a side that has it. A grid of one rate needs no run.

    Args:
        runs: the short runs of a side, one a rate.
        records: by key.

    Returns:
        runs without a record that are needed now; the rate, ``None`` while there are any and where every loss was lost.
    """
    falling = sorted(runs, key=lambda run: -run.learning_rate)
    if len(falling) == 1:
        return [], falling[0].learning_rate
    for higher, run, lower in zip(falling, falling[1:], falling[2:], strict=False):
        if {higher.key, run.key, lower.key} <= records.keys() and _is_minimum(higher, run, lower, records):
            return [], run.learning_rate
    tried = falling[:2]
    waiting = [run for run in tried if run.key not in records]
    if waiting:
        return waiting, None
    for lower in falling[2:]:
        if _loss(tried[-1], records) > min(_loss(run, records) for run in tried):
            break
        if lower.key not in records:
            return [lower], None
        tried.append(lower)
    best = min(tried, key=lambda run: _loss(run, records))
    return [], None if math.isinf(_loss(best, records)) else best.learning_rate


def _is_minimum(higher: Run, run: Run, lower: Run, records: Mapping[str, Record]) -> bool:
    """Whether a rate is better than both its neighbours."""
    return _loss(run, records) < min(_loss(higher, records), _loss(lower, records))


def _loss(run: Run, records: Mapping[str, Record]) -> float:
    """The loss of a run, infinite where it was lost."""
    loss: float = records[run.key]["figures"].get("loss", math.inf)
    return loss
