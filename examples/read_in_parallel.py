"""Read one long text on several processes, a part each, and let the last go on from the state after all of it.

In float64 this is exact; in float32 a position near the border of two addresses may differ a little.

    torchrun --nproc-per-node 2 examples/read_in_parallel.py runs/demo
"""

import sys
import time

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer

import sheafstate  # noqa: F401  registers the model with the Auto classes
from sheafstate.data import read_documents
from sheafstate.parallel import read_in_parallel

LENGTH = 16_384


def main(folder: str) -> None:
    """Each rank reads its part; the last one writes what comes next, and compares with reading the text at once."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(read_documents("tinyshakespeare")[0], return_tensors="pt").input_ids[:, :LENGTH]
    part = ids.tensor_split(world, dim=1)[rank]

    began = time.perf_counter()
    output = read_in_parallel(model, part, logits_to_keep=1)
    seconds = time.perf_counter() - began
    print(f"rank {rank} read {part.shape[1]:,} of {ids.shape[1]:,} tokens in {seconds:.2f} s", flush=True)

    if rank == world - 1:
        with torch.no_grad():
            whole = model(ids, logits_to_keep=1)
            difference = (whole.logits - output.logits).abs().max()
            token, state, written = output.logits.argmax(-1), output.cache, []
            for _ in range(60):
                written.append(token.item())
                token = model(token, cache=state, use_cache=True).logits.argmax(-1)
        print(f"largest difference to reading it at once: {difference:.1e}")
        print(f"it goes on from {state.num_bytes():,} bytes of state: {tokenizer.decode(written)!r}")
    dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    dist.destroy_process_group()
