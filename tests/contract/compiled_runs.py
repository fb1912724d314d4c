"""Compares the compiled model with the eager one, in a process without the shape checks of the test run.

``python -m tests.contract.compiled_runs VARIANT RUN BACKEND LENGTHS OPTIONS``, the last two in JSON; it fails where
they differ. The compiler cannot trace the checked constructors of the records.
"""

import json
import sys

import torch

from tests.variants import make_model, tokens


def batch(length: int) -> dict[str, torch.Tensor]:
    """Rows of two documents, one of them padded on the left."""
    ids = tokens(2, length, length)
    mask = torch.ones_like(ids)
    mask[1, : length // 3] = 0
    documents = (torch.arange(length) >= length // 2).long().expand(2, -1)
    return {"input_ids": ids, "attention_mask": mask, "document_ids": documents, "use_cache": False}


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def forward(model: torch.nn.Module, compiled: torch.nn.Module, length: int) -> None:
    close(compiled(**batch(length)).logits, model(**batch(length)).logits)


def train(model: torch.nn.Module, compiled: torch.nn.Module, length: int) -> None:
    found = []
    for run in (compiled.train(), model.train()):
        model.zero_grad()
        loss = run(**batch(length), labels=tokens(2, length, length)).loss
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        close(a, b)


@torch.no_grad()
def decode(model: torch.nn.Module, compiled: torch.nn.Module, length: int) -> None:
    """A prompt, then three steps through the cache, each side with its own state."""
    ids = tokens(2, length + 3, length)
    states = [run(ids[:, :length], use_cache=True).cache for run in (compiled, model)]
    for t in range(length, length + 3):
        a, b = (run(ids[:, t : t + 1], cache=state) for run, state in zip((compiled, model), states, strict=True))
        close(a.logits, b.logits)


RUNS = {"forward": forward, "train": train, "decode": decode}


def main(name: str, run: str, backend: str, lengths: str, options: str) -> None:
    torch.set_num_threads(1)
    settings = json.loads(options)
    model = make_model(name, torch.float32, **({"num_layers": 1} | settings.pop("config", {})))
    compiled = torch.compile(model, backend=backend, **settings)
    for length in json.loads(lengths):
        RUNS[run](model, compiled, length)


if __name__ == "__main__":
    main(*sys.argv[1:])
