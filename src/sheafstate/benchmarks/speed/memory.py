"""Peak memory of a prefill by the operating system, in a process of its own."""

import argparse
import json
import subprocess
import sys

import torch

from sheafstate.benchmarks.speed.machine import status_mib
from sheafstate.benchmarks.speed.sides import SIDES, make_side
from sheafstate.benchmarks.speed.works import Kind, Work, prepare

__all__ = ["peak_mib"]


def peak_mib(side: str, preset: str, context: int, dtype: str, threads: int) -> float:
    """MiB that reading a context takes at its highest above the process with the model in it.

    Raises:
        RuntimeError: the process failed.
    """
    given = {"side": side, "preset": preset, "context": context, "dtype": dtype, "threads": threads}
    arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "sheafstate.benchmarks.speed.memory", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"reading {context:,} tokens with {side} failed: {done.stderr.strip()[-300:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mib"])


def main() -> None:
    """Read once and print the peak."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.speed.memory", description=__doc__)
    parser.add_argument("--side", choices=list(SIDES), default="sheaf-state")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    read = prepare(make_side(given.side, given.preset), Work(Kind.PREFILL, given.context, given.dtype))
    before = status_mib("VmRSS")
    read()
    print(json.dumps({"peak_mib": round(status_mib("VmHWM") - before, 1)}))


if __name__ == "__main__":
    main()
