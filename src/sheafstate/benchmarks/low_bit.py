"""Speed and memory of packed weights beside float32: ``python -m sheafstate.benchmarks.low_bit --preset base``.

The models take turns, one decoding step or one prefill each, so that whatever else the machine does falls on all alike.
Memory is the operating system's figure for a process of its own that loads the model and writes some tokens. Weights
are random; they change neither speed nor memory. One JSON object a mode is printed, then the ratios.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from sheafstate.accounting import checkpoint_bytes
from sheafstate.benchmarks.speed.machine import status_mib
from sheafstate.benchmarks.speed.turns import take_turns
from sheafstate.config import SheafStateConfig
from sheafstate.modeling import SheafStateForCausalLM

__all__ = ["Figures", "measure"]

MODES = ("none", "int8", "int4", "ternary")
TOKENS = 16
"""Tokens that the process writes whose memory is measured."""


@dataclass(frozen=True)
class Figures:
    """What one way to store the weights costs.

    Attributes:
        mode: ``none`` for float32.
        file_bytes: size of the weights on disk.
        formula_bytes: what :func:`~sheafstate.accounting.checkpoint_bytes` says.
        decode_ms: median milliseconds of a decoding step, one row.
        prefill_ms: median milliseconds of reading a text at once.
        resident_mib: memory of a process after loading, less that of one without a model.
        peak_mib: the same at its highest, while loading and writing.
    """

    mode: str
    file_bytes: int
    formula_bytes: int
    decode_ms: float
    prefill_ms: float
    resident_mib: float
    peak_mib: float


def measure(preset: str, threads: int, steps: int, length: int, repeats: int) -> list[Figures]:
    """Measure all modes.

    Args:
        preset: size of the model.
        threads: CPU threads.
        steps: decoding steps of each model; their median counts.
        length: tokens of the prefill.
        repeats: prefills of each model.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folders = {mode: Path(name) / mode for mode in MODES}
        full = SheafStateForCausalLM(SheafStateConfig.from_preset(preset)).eval()
        for mode, folder in folders.items():
            (full if mode == "none" else full.pack(mode)).save_pretrained(folder)
        config = full.config
        del full
        memory = {mode: _memory(folder, threads) for mode, folder in folders.items()}
        models = {mode: SheafStateForCausalLM.from_pretrained(folder).eval() for mode, folder in folders.items()}
        sizes = {mode: sum(f.stat().st_size for f in folder.glob("*.safetensors")) for mode, folder in folders.items()}
        decode = take_turns({mode: _decoding(model) for mode, model in models.items()}, steps)
        prefill = take_turns({mode: _reading(model, length) for mode, model in models.items()}, repeats)
    formula = {mode: checkpoint_bytes(config, mode) for mode in MODES}
    return [
        Figures(m, sizes[m], formula[m], 1000 * decode[m].median, 1000 * prefill[m].median, *memory[m]) for m in MODES
    ]


def _decoding(model: SheafStateForCausalLM) -> Callable[[], object]:
    """A function that makes one decoding step behind a text."""
    state = model(torch.arange(128)[None], use_cache=True).cache
    return lambda: model(torch.tensor([[1]]), cache=state)


def _reading(model: SheafStateForCausalLM, length: int) -> Callable[[], object]:
    ids = torch.randint(model.config.vocab_size, (1, length))
    return lambda: model(ids, use_cache=True, logits_to_keep=1)


def _memory(folder: Path, threads: int) -> tuple[float, float]:
    """MiB resident after loading, and at the highest, above those of a process that has only imported the package."""
    command = [sys.executable, "-m", "sheafstate.benchmarks.low_bit", "--load", str(folder), "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["resident_mib"], found["peak_mib"]


def _load(folder: str, threads: int) -> None:
    """Load a model and write some tokens; print what the process takes of memory, before and after."""
    torch.set_num_threads(threads)
    before = status_mib("VmRSS")
    model = SheafStateForCausalLM.from_pretrained(folder).eval()
    model.generate(torch.tensor([[1]]), max_new_tokens=TOKENS, do_sample=False)
    found = {"resident_mib": status_mib("VmRSS") - before, "peak_mib": status_mib("VmHWM") - before}
    print(json.dumps({name: round(value, 1) for name, value in found.items()}))


@torch.no_grad()
def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.low_bit", description=__doc__)
    parser.add_argument("--preset", default="small", help="tiny, small or base")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--steps", type=int, default=100, help="decoding steps of each model")
    parser.add_argument("--length", type=int, default=512, help="tokens of the prefill")
    parser.add_argument("--repeats", type=int, default=7, help="prefills of each model")
    parser.add_argument("--load", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        _load(given.load, given.threads)
        return
    figures = measure(given.preset, given.threads, given.steps, given.length, given.repeats)
    for each in figures:
        print(json.dumps(asdict(each)))
    names = ("file_bytes", "decode_ms", "prefill_ms", "resident_mib")
    for each in figures[1:]:
        ratios = {name: round(getattr(figures[0], name) / max(getattr(each, name), 1e-9), 2) for name in names}
        print(json.dumps({"float32 over": each.mode} | ratios))


if __name__ == "__main__":
    main()
