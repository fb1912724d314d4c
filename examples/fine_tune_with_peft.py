"""Fine-tune a model with LoRA: only small adapters learn; save them, load them onto the model again, merge them in.

python examples/fine_tune_with_peft.py runs/demo my-adapter
"""

import sys
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import sheafstate  # noqa: F401  registers the model with the Auto classes

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
target = Path(sys.argv[2] if len(sys.argv) > 2 else "runs/adapter")
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

adapters = LoraConfig(
    task_type="CAUSAL_LM",
    r=8,
    lora_alpha=16,
    # every linear map of a layer; routed experts, where a model has them, are stacked parameters without a module, and
    # LoraConfig takes them as target_parameters: experts.up and experts.down
    target_modules=["in_proj", "out_proj", "shared_up", "shared_down"],
)
tuned = get_peft_model(model, adapters)
tuned.print_trainable_parameters()

question, answer = "Q: who is there?\nA: ", "nobody at all."
prompt = tokenizer(question, return_tensors="pt").input_ids
ids = tokenizer(question + answer, return_tensors="pt").input_ids
labels = ids.clone()
labels[:, : prompt.shape[1]] = -100  # only the answer is learned
optimizer = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=1e-2)
losses = []
for _ in range(20):
    loss = tuned(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
print(f"loss of the answer: {losses[0]:.3f} before, {losses[-1]:.3f} after")
assert losses[-1] < losses[0]

tuned.eval().save_pretrained(target)
with torch.no_grad(), tuned.disable_adapter():
    base = tuned(input_ids=ids).logits
with torch.no_grad():
    expected = tuned(input_ids=ids).logits
    original = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(original(input_ids=ids).logits, base), "without its adapter the model is what it was"
    loaded = PeftModel.from_pretrained(original, target).eval()
    assert torch.equal(loaded(input_ids=ids).logits, expected), "what is loaded is what was saved"
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(input_ids=ids).logits, expected, rtol=1e-3, atol=1e-3)

merged.save_pretrained(target / "merged")
tokenizer.save_pretrained(target / "merged")
written = merged.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=tokenizer.pad_token_id)
print(tokenizer.decode(written[0]))
size = sum(path.stat().st_size for path in target.glob("*.safetensors"))
print(f"the adapter takes {size:,} bytes; the merged model is in {target / 'merged'}")
