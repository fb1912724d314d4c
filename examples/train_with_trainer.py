"""Train a small model with transformers' own Trainer, save it, and load it again.

python examples/train_with_trainer.py my-model
"""

import sys

import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import PackedRows, TokenStream, load_tokenizer, read_documents

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/example"
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 50

tokenizer = load_tokenizer("byte")
stream = TokenStream.build(tokenizer, read_documents("tinyshakespeare"))
config = SheafStateConfig.from_preset("tiny", vocab_size=len(tokenizer), heads={"local": 2, "retrieval": 2, "topic": 1})
model = SheafStateForCausalLM(config)

trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=3e-3,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    ),
    train_dataset=PackedRows(stream, context=256),  # rows with input_ids, labels and document_ids
)
print(f"mean loss of the training: {trainer.train().training_loss:.3f} nats a byte")

trainer.save_model(folder)
tokenizer.save_pretrained(folder)
again = AutoModelForCausalLM.from_pretrained(folder).eval()
ids = tokenizer("ROMEO:", return_tensors="pt").input_ids
assert torch.equal(again(ids).logits, model.eval()(ids).logits), "what is loaded is what was saved"
print(f"saved to {folder}")
