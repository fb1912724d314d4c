"""Store a model in 8, 4 or 2 bits a weight and go on using it: python examples/pack_low_bit.py CHECKPOINT MODE"""

import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import sheafstate  # noqa: F401  tells the Auto classes of the model


def size(folder: Path) -> int:
    """Bytes of the weights in a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


checkpoint, mode = Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(checkpoint)
tokenizer = AutoTokenizer.from_pretrained(checkpoint)

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    model.pack(mode).save_pretrained(folder)
    packed = AutoModelForCausalLM.from_pretrained(folder)  # stays packed: no float copy of the weights is made
    print(f"{size(checkpoint):,} bytes before, {size(folder):,} in {mode}")

ids = tokenizer("To be, or not to be", return_tensors="pt").input_ids
with torch.no_grad():
    full, low = model(ids).logits, packed(ids).logits
print(f"mean difference of the logits: {(full - low).abs().mean() / full.std():.1%} of their spread")
print(tokenizer.decode(packed.generate(ids, max_new_tokens=40, do_sample=False)[0]))
