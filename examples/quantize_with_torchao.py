"""Store the linear maps of a trained model in 8 bits with torchao: what it saves, and what it costs in accuracy.

    python examples/quantize_with_torchao.py runs/demo my-int8-model

Experts and readout keep their precision: their weights are no modules of their own, or are shared with the embedding.
"""

import sys
from pathlib import Path

import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import AutoModelForCausalLM, AutoTokenizer, TorchAoConfig

import sheafstate  # noqa: F401  registers the model with the Auto classes

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
target = Path(sys.argv[2] if len(sys.argv) > 2 else "runs/int8")
text = "To be, or not to be, that is the question: "
tokenizer = AutoTokenizer.from_pretrained(folder)
ids = tokenizer(text, return_tensors="pt").input_ids


@torch.no_grad()
def log_probabilities(model: torch.nn.Module) -> torch.Tensor:
    return model(ids).logits.log_softmax(-1)


model = AutoModelForCausalLM.from_pretrained(folder).eval()
exact = log_probabilities(model)
quantize_(model, Int8WeightOnlyConfig(), lambda module, name: isinstance(module, torch.nn.Linear) and name != "lm_head")
rounded = log_probabilities(model)
divergence = (exact.exp() * (exact - rounded)).sum(-1).mean().item()
print(f"mean divergence of the next token {divergence:.6f} nats")
assert divergence < 0.05

written = model.generate(ids, max_new_tokens=24, do_sample=False, pad_token_id=tokenizer.pad_token_id)
print(tokenizer.decode(written[0]))

# the same as a part of loading; what is saved stays in 8 bits
loaded = AutoModelForCausalLM.from_pretrained(folder, quantization_config=TorchAoConfig(Int8WeightOnlyConfig()))
loaded.save_pretrained(target)
tokenizer.save_pretrained(target)
again = AutoModelForCausalLM.from_pretrained(target).eval()
assert torch.equal(log_probabilities(again), log_probabilities(loaded.eval())), "what is loaded is what was saved"
assert again.lm_head.weight is again.get_input_embeddings().weight
before, after = ((Path(place) / "model.safetensors").stat().st_size for place in (folder, target))
print(f"{before:,} bytes before, {after:,} in {target}")
assert after < before
