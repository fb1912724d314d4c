"""The record of a bench: what is in it is not measured again, and it is on the disk after every work."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sheafstate.benchmarks.speed.machine import Machine, measure_machine
from sheafstate.benchmarks.speed.run import Record, compare, measure_memory, measure_work
from sheafstate.benchmarks.speed.sides import OURS, SIDES
from sheafstate.benchmarks.speed.works import DTYPES, Work
from sheafstate.config import PRESETS
from sheafstate.errors import InputError
from sheafstate.training.export import describe_machine

__all__ = ["Book"]

VERSION = 1


class Book:
    """Records of one preset on one machine with a number of threads.

    Args:
        path: where it stands; ``None`` to keep it in memory alone.
        preset: size of our side.
        threads: CPU threads, set by the caller.

    Raises:
        InputError: the file is of another preset or number of threads, or is no record; or there is no such preset.
    """

    def __init__(self, path: Path | None, preset: str, threads: int) -> None:
        if preset not in PRESETS:
            raise InputError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
        self.path, self.preset = path, preset
        self.times: list[Record] = []
        self.memory: list[Record] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._read(path, threads)
        self.machine: Machine = measure_machine()

    def _read(self, path: Path, threads: int) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            preset, counted = found["preset"], found["machine"]["threads"]
            self.times, self.memory = list(found["times"]), list(found["memory"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no record of a bench") from error
        if (preset, counted) != (self.preset, threads):
            raise InputError(f"{path} holds the preset {preset} on {counted} threads: give another directory")

    def missing(self, work: Work, sides: Sequence[str]) -> list[str]:
        """The sides that must take turns: all of them if one has no record, for a ratio needs them in one run.

        Raises:
            InputError: unknown side or dtype.
        """
        for side in sides:
            if side not in SIDES:
                raise InputError(f"a side must be one of {', '.join(SIDES)}, not {side!r}")
        if work.dtype not in DTYPES:
            raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {work.dtype!r}")
        have = {record["side"] for record in self.times if record["name"] == str(work)}
        wanted = list(dict.fromkeys([OURS, *sides]))
        return [] if set(wanted) <= have else wanted

    def time(self, work: Work, sides: Sequence[str], repeats: int, tick: Callable[[], object] | None = None) -> None:
        """Time a work on these sides, in turns, and keep the records."""
        if not sides:
            return
        found = measure_work(work, sides, self.preset, self.machine, repeats, tick)
        self.times = [r for r in self.times if r["name"] != str(work) or r["side"] not in sides] + found
        self._write()

    def weigh(
        self, contexts: Sequence[int], sides: Sequence[str], dtype: str, tick: Callable[[], object] | None = None
    ) -> None:
        """Measure the peak memory of a prefill where there is no record of it.

        Raises:
            RuntimeError: a side ran out of memory, say.
        """
        have = {(r["context"], r["side"], r["dtype"]) for r in self.memory}
        for context in contexts:
            for side in sides:
                if (context, side, dtype) not in have:
                    self.memory += measure_memory([context], [side], self.preset, dtype)
                    self._write()
                if tick:
                    tick()

    def record(self) -> dict[str, Any]:
        """All of it: machine, times, ratios, memory."""
        return {
            "kind": "bench",
            "version": VERSION,
            "preset": self.preset,
            "machine": asdict(self.machine),
            "times": self.times,
            "ratios": list(compare(self.times)),
            "memory": self.memory,
            **{name: value for name, value in describe_machine().items() if name != "machine"},
        }

    def _write(self) -> None:
        if self.path is None:
            return
        partial = self.path.with_name(f".{self.path.name}.partial")
        partial.write_text(json.dumps(self.record(), indent=1), encoding="utf-8")
        partial.replace(self.path)
