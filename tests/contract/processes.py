"""What each of two processes does for ``test_libraries_processes``: started by torchrun, it leaves a JSON file."""

import json
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.variants import VARIANTS, make_model, tokens

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_with_fsdp.py"
MODELS = [(name, "none") for name in VARIANTS] + [("mixture", mode) for mode in ("int8", "int4", "ternary")]
PARTS = 2
STEPS, EARLY = 5, 2

Batch = dict[str, torch.Tensor]


def draw_batch(seed: int) -> Batch:
    """Four rows of unlike lengths, each with a prompt that is not learned, perhaps all of it."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 25, (4,), generator=generator)
    column = torch.arange(int(lengths.max()))
    prompts = (torch.rand(4, generator=generator) * lengths).long()
    ids = tokens(4, len(column), seed)
    mask = column < lengths[:, None]
    labels = ids.masked_fill(~mask | (column < prompts[:, None]), -100)
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": labels}


def wrap(model: torch.nn.Module, kind: str) -> torch.nn.Module:
    if kind == "ddp":
        return DistributedDataParallel(model)
    for block in model.model.layers:
        fully_shard(block)
    fully_shard(model)
    return model


def learn(model: torch.nn.Module, batch: Batch) -> float:
    """Loss of the step and, in the gradients, its slope: this process takes a row at a time, as ``Trainer`` does."""
    count, total = (batch["labels"][:, 1:] != -100).sum().clamp(min=1), torch.zeros((), dtype=torch.float64)
    for part in range(PARTS):
        last = part == PARTS - 1
        row = PARTS * dist.get_rank() + part
        if isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(last)
        waits = isinstance(model, DistributedDataParallel) and not last
        with model.no_sync() if waits else nullcontext():
            mine = {name: column[row : row + 1] for name, column in batch.items()}
            loss = model(**mine, num_items_in_batch=count).loss
            (loss * dist.get_world_size()).backward()
        total += loss.detach()
    dist.all_reduce(total)
    return total.item()


def compare(name: str, quantization: str, seed: int) -> dict:
    """How far two processes are from one, each error relative to the largest value."""
    options = {"quantization": quantization, "router_aux_loss_coef": 1.0}
    batch, errors = draw_batch(seed), {}
    one = make_model(name, seed=seed, **options).train()
    count = (batch["labels"][:, 1:] != -100).sum().clamp(min=1)
    loss = one(**batch, num_items_in_batch=count).loss
    loss.backward()
    size = max(p.grad.abs().max().item() for p in one.parameters())
    for kind in ("ddp", "fsdp"):
        inner = make_model(name, seed=seed, **options).train()
        errors[f"{kind} loss"] = abs(learn(wrap(inner, kind), batch) - loss.item())
        theirs = [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in inner.parameters()]
        pairs = zip(one.parameters(), theirs, strict=True)
        errors[f"{kind} gradient"] = max((p.grad - g).abs().max().item() for p, g in pairs) / max(size, 1e-12)
    return {"model": f"{name} {quantization}", "seed": seed, **errors}


def run_example(folder: Path) -> dict[str, list[float]]:
    """A run without a break, and one that is left twice: after its checkpoint, and in the middle of the next."""
    train = runpy.run_path(str(EXAMPLE))["train"]
    losses = {"whole": train(folder / "whole", STEPS), "first": train(folder / "parts", EARLY)}
    losses["second"] = train(folder / "parts", STEPS)
    if dist.get_rank() == 0:
        (folder / "parts" / f"checkpoint-{STEPS}" / "complete.json").unlink()
    dist.barrier()
    losses["again"] = train(folder / "parts", STEPS)
    return losses


def main() -> None:
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    seeds = range(rounds * len(MODELS))
    errors = [compare(*MODELS[seed % len(MODELS)], seed) for seed in seeds]
    losses = run_example(folder)
    if dist.get_rank() == 0:
        (folder / "result.json").write_text(json.dumps({"errors": errors, "losses": losses}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
