"""One run, from its part of the plan to its record."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from sheafstate.accounting import parameters, state_bytes
from sheafstate.benchmarks.experiments.plan import Run
from sheafstate.benchmarks.experiments.tasks import Task, make_task
from sheafstate.benchmarks.experiments.trainer import fit
from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.training.export import describe_machine

__all__ = ["execute", "fitted_config"]


def fitted_config(model: Mapping[str, Any], vocab_size: int) -> SheafStateConfig:
    """The configuration of a side, with the shared feed-forward width that brings it nearest to its parameters.

    Args:
        model: fields of the configuration; ``preset``, and ``parameters`` without embeddings, are taken out.
        vocab_size: tokens.

    Raises:
        InputError: the side has more parameters than asked for without any shared feed-forward part.
    """
    fields = dict(model)
    preset, wanted = fields.pop("preset"), fields.pop("parameters", None)
    config = SheafStateConfig.from_preset(preset, vocab_size=vocab_size, **fields)
    if wanted is None or "d_ff" in fields:
        return config

    def count(d_ff: int) -> int:
        resized = SheafStateConfig.from_preset(preset, vocab_size=vocab_size, **fields, d_ff=d_ff)
        return parameters(resized).non_embedding

    one = count(2) - count(1)
    d_ff = round((wanted - count(1)) / one) + 1
    if d_ff < 1:
        raise InputError(f"a side has {count(1):,} parameters with the narrowest feed-forward part, over {wanted:,}")
    return SheafStateConfig.from_preset(preset, vocab_size=vocab_size, **fields, d_ff=d_ff)


def execute(run: Run, phase: str, folder: Path) -> dict[str, Any]:
    """Train and measure; return the record.

    Args:
        run: the run.
        phase: ``tune`` for a short run by which a learning rate is chosen, ``full`` for one that counts.
        folder: for encoded text and what the Trainer writes.
    """
    machine = describe_machine()
    set_seed(run.seed)
    task = make_task(run.spec, folder / "data")
    config = fitted_config(run.model, task.vocab_size)
    model = SheafStateForCausalLM(config)
    batch = int(run.spec["rows"])
    started = time.perf_counter()
    losses = fit(
        model,
        task.rows(run.steps * batch, run.seed),
        folder / "trainer" / run.key,
        steps=run.steps,
        batch_size=batch,
        rate=run.learning_rate,
        seed=run.seed,
        bf16=bool(run.spec.get("bf16", False)),
    )
    seconds = time.perf_counter() - started
    figures = {} if losses[-1][1] is None else _measure(model.eval(), task, phase)
    tokens = run.steps * batch * int(run.spec["context"])
    counted = parameters(config)
    return {
        "key": run.key,
        **asdict(run),
        "phase": phase,
        "figures": figures,
        "losses": losses,
        "tokens": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds, 1),
        "parameters": {"non_embedding": counted.non_embedding, "total": counted.total, "active": counted.active},
        "state_bytes": state_bytes(config, int(run.spec["context"])),
        "d_ff": config.d_ff,
        **machine,
    }


def _measure(model: SheafStateForCausalLM, task: Task, phase: str) -> dict[str, float]:
    with torch.no_grad():
        figures = task.measure(model, phase == "tune")
    return figures if all(map(math.isfinite, figures.values())) else {}
