"""What is timed: a training step, reading a context, writing one token behind it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum

import torch
from transformers import DynamicCache, LlamaForCausalLM, PreTrainedModel, StaticCache

from sheafstate.benchmarks.speed.sides import VOCABULARY
from sheafstate.errors import InputError

__all__ = ["DTYPES", "Kind", "Work", "prepare"]

STEP_TOKENS = 8192
"""Tokens of a training step, at every context."""

CHUNK = 8192
"""Positions that are read at once before decoding."""

ROOM = 256
"""Tokens that a static cache has room for behind the context."""

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Kind(StrEnum):
    """Kinds of work."""

    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True)
class Work:
    """One row of the table.

    Attributes:
        kind: what is done.
        context: tokens of a row.
        dtype: ``fp32`` or ``bf16``; training in bf16 is autocast, all else has weights of that dtype.
        compiled: whether by ``torch.compile``.
    """

    kind: Kind
    context: int
    dtype: str = "fp32"
    compiled: bool = False

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return max(1, STEP_TOKENS // self.context) if self.kind is Kind.TRAIN else 1

    @property
    def tokens(self) -> int:
        """Tokens of one call."""
        return 1 if self.kind is Kind.DECODE else self.rows * self.context

    def __str__(self) -> str:
        mode = " compiled" if self.compiled else ""
        return f"{self.kind} {self.context:,} {self.dtype}{mode}"


def prepare(model: PreTrainedModel, work: Work, device: str = "cpu") -> Callable[[], object]:
    """A function that does the work once, and waits for the device.

    Args:
        model: a side; it is moved to the device.
        work: what is done.
        device: where.

    Raises:
        InputError: unknown dtype.
    """
    if work.dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {work.dtype!r}")
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCABULARY, (work.rows, work.context), generator=generator).to(device)
    model.eval().to(torch.device(device))
    if work.kind is Kind.TRAIN:
        call = _training(model, ids, work)
    elif work.kind is Kind.DECODE:
        call = _decoding(model.eval().to(DTYPES[work.dtype]), ids, work)
    else:
        call = _reading(model.eval().to(DTYPES[work.dtype]), ids, work)
    return call if ids.device.type == "cpu" else _waiting(call, ids.device)


def _waiting(call: Callable[[], object], device: torch.device) -> Callable[[], object]:
    def done() -> None:
        call()
        torch.accelerator.synchronize(device)

    return done


def _reading(model: PreTrainedModel, ids: torch.Tensor, work: Work) -> Callable[[], object]:
    forward = torch.compile(model.forward, dynamic=False) if work.compiled else model.forward

    def read() -> object:
        with torch.no_grad():
            return forward(input_ids=ids, use_cache=True, logits_to_keep=1)

    return read


def _training(model: PreTrainedModel, ids: torch.Tensor, work: Work) -> Callable[[], object]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    forward = torch.compile(model.forward, dynamic=False) if work.compiled else model.forward

    def step() -> object:
        with torch.autocast(ids.device.type, torch.bfloat16) if work.dtype == "bf16" else nullcontext():
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@torch.no_grad()
def _decoding(model: PreTrainedModel, ids: torch.Tensor, work: Work) -> Callable[[], object]:
    """One step behind the context. A Llama's cache is filled with random numbers, which change nothing of its speed."""
    if isinstance(model, LlamaForCausalLM):
        cache = _llama_cache(model, work)
    else:
        cache = None
        for part in ids.split(CHUNK, 1):
            cache = model(input_ids=part, cache=cache, use_cache=True, logits_to_keep=1).cache
    forward = torch.compile(model.forward) if work.compiled else model.forward
    token, count = torch.ones_like(ids[:, :1]), 0

    def step() -> object:
        nonlocal count
        position = torch.full_like(token, work.context + count)
        count += 1
        given = {"position_ids": position} if isinstance(model, LlamaForCausalLM) else {}
        with torch.no_grad():
            return forward(input_ids=token, cache=cache, use_cache=True, **given)

    return step


def _llama_cache(model: LlamaForCausalLM, work: Work) -> DynamicCache | StaticCache:
    config = model.config
    room = work.context + ROOM
    cache = StaticCache(config=config, max_cache_len=room) if work.compiled else DynamicCache(config=config)
    generator = torch.Generator().manual_seed(1)
    for layer in range(config.num_hidden_layers):
        shape = (1, config.num_attention_heads, work.context, config.hidden_size // config.num_attention_heads)
        keys, values = (torch.randn(shape, generator=generator).to(model.dtype) for _ in range(2))
        cache.update(keys.to(model.device), values.to(model.device), layer)
    return cache
