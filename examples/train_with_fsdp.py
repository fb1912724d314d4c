"""Train on several processes that hold a part of every weight each (FSDP2), go on from where a run stood, export.

    torchrun --nproc-per-node 2 examples/train_with_fsdp.py runs/fsdp 20
    torchrun --nproc-per-node 2 examples/train_with_fsdp.py runs/fsdp 40   # goes on from step 20

On GPUs `TrainingArguments(fsdp=True)` does the same; on CPUs `Trainer` takes whole copies instead, without a word.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import default_data_collator

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import PackedRows, TokenStream, load_tokenizer, read_documents
from sheafstate.training import last_checkpoint
from sheafstate.training.checkpoints import STAGING, publish
from sheafstate.training.export import export

ROWS, CONTEXT, LEARNING_RATE = 4, 64, 3e-3


def shard(model: SheafStateForCausalLM) -> None:
    """Each block is gathered when its turn comes; embedding, norm and readout, whose weights are tied, are one more."""
    for block in model.model.layers:
        fully_shard(block)
    fully_shard(model)


def step(model: SheafStateForCausalLM, optimizer: torch.optim.AdamW, rows: list[dict]) -> float:
    """One step over the rows of all processes; returns its loss."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count = int(sum((row["labels"][1:] != -100).sum() for row in rows))
    mine = {name: column.to(model.device) for name, column in default_data_collator(rows[rank::world]).items()}
    loss = model(**mine, num_items_in_batch=count).loss
    (loss * world).backward()  # FSDP takes the mean over processes, and the loss is a share of the sum
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    total = loss.detach()
    dist.all_reduce(total)
    return total.item()


def tensors(model: SheafStateForCausalLM, optimizer: torch.optim.AdamW) -> dict[str, torch.Tensor]:
    """This process's parts of all that a step changes: every weight once, and what AdamW remembers of it."""
    found = dict(model.named_buffers())
    for name, parameter in model.named_parameters():
        memory = optimizer.state[parameter]
        if not memory:  # no step was made yet
            memory |= {key: torch.zeros_like(parameter) for key in ("exp_avg", "exp_avg_sq")}
            memory["step"] = torch.zeros(())
        found |= {name: parameter.detach()} | {f"{name}.{key}": value for key, value in memory.items()}
    return found


def save(folder: Path, done: int, model: SheafStateForCausalLM, optimizer: torch.optim.AdamW) -> None:
    """All processes write their parts as safetensors; the checkpoint is in its place once it is whole."""
    staged = folder / STAGING / f"checkpoint-{done}"
    writer = checkpoint.HuggingFaceStorageWriter(str(staged), save_distributed=True)
    checkpoint.save(tensors(model, optimizer), storage_writer=writer)
    if dist.get_rank() == 0:
        publish(staged, folder / staged.name)
    dist.barrier()


def load(folder: Path, model: SheafStateForCausalLM, optimizer: torch.optim.AdamW) -> int:
    """Fill the parts of this process from the last whole checkpoint; returns the steps that were done."""
    last = last_checkpoint(folder)
    if last is None:
        return 0
    checkpoint.load(tensors(model, optimizer), storage_reader=checkpoint.HuggingFaceStorageReader(str(last)))
    return int(last.name.rpartition("-")[2])


def train(folder: Path, steps: int) -> list[float]:
    """Train up to a number of steps, those before a resume included; returns the losses of this call."""
    tokenizer = load_tokenizer("byte")
    text = read_documents("tinyshakespeare")[0][:100_000]
    rows = PackedRows(TokenStream.build(tokenizer, [text]), context=CONTEXT)
    torch.manual_seed(0)  # the same weights everywhere, of which each process then keeps its parts
    config = SheafStateConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=64, num_layers=2)
    model = SheafStateForCausalLM(config).to(f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu")
    shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    done = load(folder, model, optimizer)
    losses = [step(model, optimizer, [rows[i * ROWS + j] for j in range(ROWS)]) for i in range(done, steps)]
    save(folder, steps, model, optimizer)
    state = model.state_dict().items()
    weights = {name: part.full_tensor() if isinstance(part, DTensor) else part for name, part in state}
    if dist.get_rank() == 0:
        whole = SheafStateForCausalLM(config)
        whole.load_state_dict(weights)
        export(whole, tokenizer, folder)
    return losses


if __name__ == "__main__":
    dist.init_process_group()
    losses = train(Path(sys.argv[1]), int(sys.argv[2]))
    if dist.get_rank() == 0:
        print(" ".join(f"{loss:.4f}" for loss in losses))
    dist.destroy_process_group()
