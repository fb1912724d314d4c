"""Read a text once, keep the state, and go on from it in two ways.

The state has a fixed size, whatever the length of the text, and a snapshot of it is a copy that nothing changes.

    python examples/branch_a_state.py runs/demo
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import sheafstate  # noqa: F401  registers the model with the Auto classes

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def go_on(state, text: str, count: int = 40) -> str:
    """Read ``text`` on from a state, then take the likeliest token again and again."""
    state, ids, written = state.snapshot(), tokenizer(text, return_tensors="pt").input_ids, []
    with torch.no_grad():
        for _ in range(count):
            output = model(ids, cache=state, use_cache=True, logits_to_keep=1)
            state, ids = output.cache, output.logits.argmax(-1)
            written.append(ids.item())
    return tokenizer.decode(written)


beginning = tokenizer("KATHARINA:\nGood morrow, ", return_tensors="pt").input_ids
with torch.no_grad():
    read = model(beginning, use_cache=True, logits_to_keep=1)

print(f"the state of the text so far: {read.cache.num_bytes():,} bytes")
branches = {text: go_on(read.cache, text) for text in ("gentle ", "villain, ")}
for text, written in branches.items():
    print(f"--- {text!r} goes on:\n{written}")
assert go_on(read.cache, "gentle ") == branches["gentle "], "a snapshot is not changed by what is read on from it"
