"""One run, from its part of the plan to its record."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, set_seed

from sheafstate.accounting import parameters, state_bytes, state_elements
from sheafstate.benchmarks import peers
from sheafstate.benchmarks.experiments.plan import Run
from sheafstate.benchmarks.experiments.tasks import Task, make_task
from sheafstate.benchmarks.experiments.trainer import fit
from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.evaluation import NotFiniteError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.training.export import describe_machine

__all__ = ["execute", "fitted_config", "make_model"]


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
    machine, context = describe_machine(), int(run.spec["context"])
    set_seed(run.seed)
    task = make_task(run.spec, folder / "data")
    model = make_model(run.model, task.vocab_size)
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
    tokens = run.steps * batch * context
    return {
        "key": run.key,
        **asdict(run),
        "phase": phase,
        "figures": figures,
        "losses": losses,
        "tokens": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds, 1),
        **_size(model, context),
        **machine,
    }


def make_model(fields: Mapping[str, Any], vocab_size: int) -> PreTrainedModel:
    """The model of a side with random weights: ours, or the peer that its fields name.

    Raises:
        InputError: unknown peer, or one that lacks a field of its shape or has others.
    """
    if "peer" not in fields:
        return SheafStateForCausalLM(fitted_config(fields, vocab_size))
    given = {name: value for name, value in fields.items() if name != "peer"}
    try:
        shape = peers.Shape(vocab_size, **given)
    except TypeError as error:
        raise InputError(f"the shape of a peer is width, layers, d_head and parameters: {error}") from error
    return peers.make_peer(fields["peer"], shape)


def _size(model: PreTrainedModel, context: int) -> dict[str, Any]:
    """What a record says of a model's size: parameters, what it carries while decoding, its feed-forward width."""
    total = sum(p.numel() for p in model.parameters())
    if isinstance(model, SheafStateForCausalLM):
        config, counted = model.config, parameters(model.config)
        embedding, active, d_ff = counted.embedding, counted.active, config.d_ff
        carried, elements = state_bytes(config, context), state_elements(config, context)
    else:
        active, d_ff = peers.non_embedding(model), getattr(model.config, "intermediate_size", 0)
        embedding = total - active
        elements = peers.state_elements(model, context)
        carried = 4 * elements
    return {
        "parameters": {"non_embedding": total - embedding, "total": total, "active": active},
        "state_bytes": carried,
        "state_elements": elements,
        "d_ff": d_ff,
    }


def _measure(model: PreTrainedModel, task: Task, phase: str) -> dict[str, float]:
    with torch.no_grad():
        try:
            figures = task.measure(model, phase == "tune")
        except NotFiniteError:
            return {}
    return figures if all(map(math.isfinite, figures.values())) else {}
