"""``python -m sheafstate.benchmarks.speed.profile``: where the time of one call goes, by part and by operation.

Shares by part are of the forward pass, by hooks around the modules; shares by operation are of the whole call, backward
pass and optimiser included, by PyTorch's profiler.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import nn
from torch.profiler import ProfilerActivity, profile

from sheafstate.benchmarks.pages import markdown_table
from sheafstate.benchmarks.speed.machine import threads
from sheafstate.benchmarks.speed.sides import make_side
from sheafstate.benchmarks.speed.works import Kind, Work, prepare
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.nn.block import Block

__all__ = ["profile_operations", "profile_parts"]

WARMUP = 2


def profile_parts(model: SheafStateForCausalLM, call: Callable[[], object], calls: int) -> dict[str, float]:
    """Share of each part of the layers in the seconds of all layers, from the most to the least.

    Args:
        model: whose layers ``call`` runs.
        call: the work.
        calls: how often it is run.
    """
    spent: dict[str, float] = defaultdict(float)
    with ExitStack() as hooks:
        for block in model.model.layers:
            for name, part in _parts(block):
                hooks.enter_context(_timed(part, name, spent))
        for _ in range(calls):
            call()
    whole = spent.pop("layer")
    spent["rest"] = whole - sum(spent.values())
    return {name: spent[name] / whole for name in sorted(spent, key=lambda name: -spent[name])}


def _parts(block: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    assert isinstance(block, Block)
    yield "layer", block
    yield "input projection", block.in_proj
    for name in ("site", "dynamics", "gluing", "experts"):
        yield name, getattr(block, name)
    for norm in (block.norm, block.expert_norm):
        yield "norms", norm
    yield from block.transport.readers.items()


@contextmanager
def _timed(module: nn.Module, name: str, spent: dict[str, float]) -> Iterator[None]:
    begun: list[float] = []

    def begin(*_: object) -> None:
        begun.append(time.perf_counter())

    def end(*_: object) -> None:
        spent[name] += time.perf_counter() - begun.pop()

    handles = module.register_forward_pre_hook(begin), module.register_forward_hook(end)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def profile_operations(call: Callable[[], object], calls: int, most: int) -> dict[str, float]:
    """Share of the operations that take most, in the seconds of all operations, from the most to the least."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(calls):
            call()
    spent = Counter({event.key: event.self_cpu_time_total for event in found.key_averages()})
    return {name: share / spent.total() for name, share in spent.most_common(most)}


def main(arguments: list[str] | None = None) -> int:
    """Print both tables; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.speed.profile", description=__doc__)
    parser.add_argument("--work", default="prefill", choices=[str(kind) for kind in Kind])
    parser.add_argument("--context", type=int, default=2048, help="tokens of a row")
    parser.add_argument("--preset", default="small", help="tiny, small or base")
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    try:
        with threads(options.threads):
            _print_tables(options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _print_tables(options: argparse.Namespace) -> None:
    model = make_side("sheaf-state", options.preset)
    assert isinstance(model, SheafStateForCausalLM)
    call = prepare(model, Work(Kind(options.work), options.context))
    for _ in range(WARMUP):
        call()
    parts = profile_parts(model, call, options.calls)
    operations = profile_operations(call, options.calls, 15)
    for head, shares in (("part of the layer", parts), ("operation", operations)):
        rows = [[name, f"{100 * share:.1f}"] for name, share in shares.items()]
        print(markdown_table((head, "% of the time"), rows, left=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
