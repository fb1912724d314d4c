"""``python -m sheafstate.benchmarks.speed.flat``: does decoding slow down with the context?

One model of ours decodes behind several contexts in turns, so that whatever else the machine does falls on all alike. A
JSON object a context is printed: its milliseconds a token, and the ratio to those behind the first.
"""

import argparse
import json
import statistics
import sys

from sheafstate.benchmarks.speed.machine import threads
from sheafstate.benchmarks.speed.sides import OURS, make_side
from sheafstate.benchmarks.speed.turns import take_turns
from sheafstate.benchmarks.speed.works import Kind, Work, prepare
from sheafstate.errors import InputError

__all__ = ["compare_contexts"]


def compare_contexts(preset: str, contexts: list[int], repeats: int) -> list[dict[str, float]]:
    """Median milliseconds a token behind each context, and the median over the turns of its ratio to the first.

    Args:
        preset: size of the model.
        contexts: tokens that were read before.
        repeats: turns that count.
    """
    steps = {str(context): prepare(make_side(OURS, preset), Work(Kind.DECODE, context)) for context in contexts}
    timings = take_turns(steps, repeats, warmups=5)
    first = timings[str(contexts[0])].seconds
    found = []
    for context in contexts:
        timing = timings[str(context)]
        ratios = [a / b for a, b in zip(timing.seconds, first, strict=True)]
        found.append({"context": context, "ms": 1000 * timing.median, "ratio": statistics.median(ratios)})
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.speed.flat", description=__doc__)
    parser.add_argument("--preset", default="small", help="tiny, small or base")
    parser.add_argument("--context", type=int, action="append", help="tokens read before; may be repeated")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if min(options.repeats, options.threads, *(options.context or [1])) < 1:
        parser.error("--repeats, --threads and --context must be at least 1")
    try:
        with threads(options.threads):
            for figures in compare_contexts(options.preset, options.context or [128, 131_072], options.repeats):
                print(json.dumps(figures))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
