"""Checks and times the model on an accelerator: python benchmarks/gpu.py --out runs/gpu

First the checks: on the device, in float32, every patch type alone and the mixture give the logits and gradients that
the CPU gives in float64, and steps of decoding those of the whole text. Then prefill, training step and decoding from
2,048 to 524,288 tokens, in turns with a Llama over FlashAttention (scaled_dot_product_attention) and with Mamba-2, that
takes the kernels of mamba_ssm where they are installed. A side that runs out of memory is told so and left out.
Everything goes into one JSON file, rewritten after each work.
"""

import argparse
import gc
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.benchmarks.speed.sides import OURS, SIDES, make_side
from sheafstate.benchmarks.speed.turns import take_turns
from sheafstate.benchmarks.speed.works import Kind, Work, prepare
from sheafstate.patches import HEAD_TYPES
from sheafstate.training.export import describe_machine

LENGTHS = tuple(2**n for n in range(11, 20))
CHECKED = 200
LIMITS = {"logits": 1e-3, "gradients": 1e-2, "steps": 1e-3}
"""Largest differences to the CPU in float64, relative to the largest value."""


def check(device: str) -> list[dict[str, Any]]:
    """Compare every patch type, and all together, with the CPU in float64."""
    cases: dict[str, dict[str, int] | None] = {str(kind): {str(kind): 2} for kind in HEAD_TYPES} | {"mixture": None}
    found = []
    for name, heads in cases.items():
        torch.manual_seed(0)
        config = SheafStateConfig.from_preset("tiny", **({"heads": heads} if heads else {}))
        exact = SheafStateForCausalLM(config).double()
        with torch.no_grad():
            exact.model.embed_tokens.weight.mul_(50)  # so that sections are no rounding errors
        there = SheafStateForCausalLM(config)
        there.load_state_dict(exact.state_dict())
        there = there.float().to(device)
        ids = torch.randint(config.vocab_size, (2, CHECKED))
        here, away = exact(ids, labels=ids), there(ids.to(device), labels=ids.to(device))
        here.loss.backward()
        away.loss.backward()
        slopes = [
            (a.grad - b.grad.cpu().double()).abs().max().item() / max(a.grad.abs().max().item(), 1e-9)
            for a, b in zip(exact.parameters(), there.parameters(), strict=True)
        ]
        with torch.no_grad():
            cache = there(ids[:, : CHECKED - 20].to(device), use_cache=True).cache
            steps = [there(ids[:, t : t + 1].to(device), cache=cache).logits for t in range(CHECKED - 20, CHECKED)]
        differences = {
            "logits": _apart(away.logits, here.logits),
            "gradients": max(slopes),
            "steps": _apart(torch.cat(steps, 1), here.logits[:, -20:]),
        }
        found.append({"case": name, **differences, "passed": all(differences[k] <= v for k, v in LIMITS.items())})
        print(json.dumps(found[-1]), flush=True)
    return found


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.detach().cpu().double() - b.detach()).abs().max().item() / b.abs().max().item()


def measure(work: Work, sides: list[str], preset: str, device: str, repeats: int) -> list[dict[str, Any]]:
    """Time a work on every side that has room for it."""
    calls, peaks = {}, {}
    for side in sides:
        _clean(device)
        try:
            calls[side] = prepare(make_side(side, preset), work, device)
            calls[side]()
            peaks[side] = torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None
        except torch.OutOfMemoryError:
            calls.pop(side, None)
            print(f"{work}: {side} has no room", flush=True)
    timings = take_turns(calls, repeats)
    return [
        {
            "work": asdict(work),
            "name": str(work),
            "side": side,
            "median_seconds": timing.median,
            "seconds": timing.seconds,
            "warmup_seconds": timing.warmup,
            "tokens_per_second": work.tokens / timing.median,
            "peak_mib": peaks[side],
        }
        for side, timing in timings.items()
    ]


def _clean(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def main() -> None:
    """Check, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="small", help="tiny, small or base")
    parser.add_argument("--dtype", default="bf16", help="fp32 or bf16")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--sides", nargs="+", default=[OURS, "llama", "mamba2"], choices=list(SIDES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="every side by torch.compile")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if given.device == "cuda" else given.device
    record: dict[str, Any] = {"kind": "gpu", "device": name, "preset": given.preset, **describe_machine()}
    record["checks"] = check(given.device)
    record["times"] = []
    for kind in (Kind.PREFILL, Kind.DECODE, Kind.TRAIN):
        for length in given.lengths:
            work = Work(kind, length, given.dtype, given.compile)
            record["times"] += measure(work, given.sides, given.preset, given.device, given.repeats)
            (given.out / "gpu.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
            for row in record["times"][-len(given.sides) :]:
                if row["name"] == str(work):
                    print(f"{row['name']:28} {row['side']:12} {1000 * row['median_seconds']:10.2f} ms", flush=True)
    failed = [row["case"] for row in record["checks"] if not row["passed"]]
    if failed:
        raise SystemExit(f"the device differs from the CPU for {', '.join(failed)}")


if __name__ == "__main__":
    main()
