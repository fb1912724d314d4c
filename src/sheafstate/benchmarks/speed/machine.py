"""How fast this machine multiplies and how fast it moves memory: the floor under every figure."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from sheafstate.ops.product import linear_product

__all__ = ["Machine", "measure_machine", "status_mib", "threads"]

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
SIDES = (256, 512, 1024, 2048)
"""Sides of the square products; the first that takes ``ENOUGH`` is measured, the last on most machines."""
ENOUGH = 0.1
"""Seconds. Without units for bfloat16 a product of the last side takes half a minute."""
COPIED = 2**28
"""Bytes of the tensor that is copied, far beyond the caches."""


@dataclass(frozen=True)
class Machine:
    """Measured limits.

    Attributes:
        gflops: billions of operations a second of a square product in float32 by the faster of PyTorch's two
            libraries, a multiply and an add being two.
        gflops_bf16: the same in bfloat16.
        gbytes: billions of bytes a second read and written by a copy.
        threads: CPU threads that were used.
    """

    gflops: float
    gflops_bf16: float
    gbytes: float
    threads: int


@contextmanager
def threads(count: int) -> Iterator[None]:
    """That many CPU threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_machine(repeats: int = 7) -> Machine:
    """Medians of ``repeats``, after two calls that do not count."""
    source = torch.zeros(COPIED // 4)
    target = torch.empty_like(source)
    return Machine(
        gflops=max(_gflops(product, torch.float32, repeats) for product in (torch.matmul, linear_product)),
        gflops_bf16=_gflops(torch.matmul, torch.bfloat16, repeats),
        gbytes=2 * COPIED / 1e9 / _seconds(lambda: target.copy_(source), repeats),
        threads=torch.get_num_threads(),
    )


def _gflops(product: Product, dtype: torch.dtype, repeats: int) -> float:
    """Billions of operations a second of a square product, at the first side that takes long enough."""
    for side in SIDES:
        a, b = (torch.randn(side, side, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
        pair = partial(product, a, b)
        if side == SIDES[-1] or _seconds(pair, 1) >= ENOUGH:
            break
    return 2 * side**3 / 1e9 / _seconds(pair, repeats)


def _seconds(call: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])


def status_mib(name: str) -> float:
    """MiB that Linux gives for this process, e.g. ``VmHWM``; getrusage would count what the parent held at its fork."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
