"""Compile a model for rows of one length, and see what it brings: a step of training, eager and compiled.

python examples/compile_the_model.py inductor     # needs a C++ compiler; aot_eager needs none and is no faster
"""

import shutil
import sys
import time

import torch

from sheafstate import SheafStateConfig, SheafStateForCausalLM

backend = sys.argv[1] if len(sys.argv) > 1 else "inductor" if shutil.which("g++") else "aot_eager"
length = int(sys.argv[2]) if len(sys.argv) > 2 else 256

config = SheafStateConfig.from_preset("tiny", num_layers=1, heads={"local": 2, "topic": 1, "retrieval": 1})
torch.manual_seed(0)
model = SheafStateForCausalLM(config).train()
ids = torch.randint(config.vocab_size, (4, length))


def step(forward) -> tuple[float, torch.Tensor, float]:
    """Loss, a gradient and the seconds of a step."""
    model.zero_grad()
    started = time.perf_counter()
    loss = forward(input_ids=ids, labels=ids).loss
    loss.backward()
    return loss.item(), model.model.layers[0].in_proj.weight.grad.clone(), time.perf_counter() - started


# rows of one length: for any other the model is compiled once more
compiled = torch.compile(model, backend=backend, dynamic=False)
(loss, gradient, _), (their_loss, their_gradient, first) = step(model), step(compiled)
torch.testing.assert_close(their_loss, loss, rtol=1e-4, atol=1e-4)
torch.testing.assert_close(their_gradient, gradient, rtol=1e-3, atol=1e-4)

eager = min(step(model)[2] for _ in range(5))
fast = min(step(compiled)[2] for _ in range(5))
print(f"{backend}, {ids.shape[0]} rows of {length} tokens, {torch.get_num_threads()} threads")
print(f"first step, compiling: {first:.1f} s; best of five: eager {eager:.3f} s, compiled {fast:.3f} s")
