"""``python -m tests.fuzz.run --minutes 10 [--target NAME …] [--seed N]``: calls on damaged input, counted.

A call may succeed or raise ``InputError``; all else is a fault, named by its kind and place and shown with the seed
that brings it back: ``python -m tests.fuzz.run --target NAME --only SEED``. A call that takes longer than ``LIMIT``
seconds or more memory than ``MEMORY`` is a fault as well. The seed of the call at work is kept in the file that
``--trace`` names, so that a crash of the process can be told, too.
"""

import argparse
import collections
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

from sheafstate.errors import InputError

from .targets import TARGETS

LIMIT = 60
MEMORY = 12 << 30


class TooLong(BaseException):
    """Raised in a call that does not end; no handler of the package may take it for an error."""


def place(error: BaseException) -> str:
    """Kind of an error and the last line of the package that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/sheafstate/" in frame.filename] or frames
    where = ours[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno} in {where.name}"


def attempt(name: str, seed: int, good: Path, work: Path) -> BaseException | None:
    """One call; what it raised, if it raised."""
    signal.alarm(LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[name].run(Random(f"{name} {seed}"), good, work)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of a library written in Rust is no Exception
        return error
    finally:
        signal.alarm(0)
    return None


def fuzz(names: list[str], seconds: float, first: int, trace: Path) -> dict[str, collections.Counter]:
    """Call the targets in turn until the time is over; count what came of it, by target."""
    counts: dict[str, collections.Counter] = {name: collections.Counter() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        good = {name: Path(folder) / name / "good" for name in names}
        for name in names:
            TARGETS[name].prepare(good[name])
        spent = dict.fromkeys(names, 0.0)
        seed, end = first, time.monotonic() + seconds
        while time.monotonic() < end:
            name = min(spent, key=lambda each: spent[each])  # each target gets the same time
            began = time.monotonic()
            seed += 1
            trace.write_text(f"{name} {seed}\n")
            error = attempt(name, seed, good[name], Path(folder) / "work")
            spent[name] += time.monotonic() - began
            told = isinstance(error, InputError)
            outcome = "accepted" if error is None else "refused" if told else place(error)
            counts[name][outcome] += 1
            if outcome not in ("accepted", "refused") and counts[name][outcome] == 1:
                print(f"{name} --only {seed}: {outcome}: {ascii(str(error))[:200]}", flush=True)
    return counts


def repeat(name: str, seed: int) -> None:
    """One call again, its traceback shown."""
    with tempfile.TemporaryDirectory() as folder:
        TARGETS[name].prepare(Path(folder) / "good")
        error = attempt(name, seed, Path(folder) / "good", Path(folder) / "work")
        if error is not None:
            traceback.print_exception(error)


def main() -> int:
    """Read the command line; the status is 1 if a fault was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", action="append", choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=0, help="the calls are numbered from here")
    parser.add_argument("--only", type=int, help="repeat this call of the one --target")
    parser.add_argument("--trace", type=Path, default=Path(tempfile.gettempdir()) / "sheafstate-fuzz")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))

    def stop(*_: object) -> None:
        raise TooLong(f"no end after {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    names = given.target or list(TARGETS)
    if given.only is not None:
        repeat(names[0], given.only)
        return 0
    counts = fuzz(names, given.minutes * 60, given.seed, given.trace)
    faults = 0
    for name, outcomes in counts.items():
        odd = {outcome: n for outcome, n in outcomes.items() if outcome not in ("accepted", "refused")}
        faults += len(odd)
        print(f"{name:14} {outcomes.total():7,} calls, {outcomes['refused']:7,} refused, {len(odd)} kinds of fault")
    print(f"{sum(c.total() for c in counts.values()):,} calls, {faults} kinds of fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
