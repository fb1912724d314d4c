"""Timing sides in turns, so that whatever else the machine does falls on all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Timing", "take_turns"]


@dataclass(frozen=True)
class Timing:
    """Seconds of a side.

    Attributes:
        warmup: of the calls that do not count, in order; the first holds what happens once (compiling, allocating).
        seconds: of the calls that count, in order.
    """

    warmup: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median seconds of the calls that count."""
        return statistics.median(self.seconds)


def take_turns(
    calls: Mapping[str, Callable[[], object]], repeats: int, warmups: int = 2, tick: Callable[[], object] | None = None
) -> dict[str, Timing]:
    """Call every side once, then every side again, and so on.

    Args:
        calls: what each side does once.
        repeats: turns that count.
        warmups: turns before them.
        tick: called after every call, for a progress bar.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warmups + repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
            if tick:
                tick()
    return {name: Timing(tuple(s[:warmups]), tuple(s[warmups:])) for name, s in seconds.items()}
