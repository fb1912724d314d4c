"""Train a small model with transformers' own Trainer, go on from a checkpoint, save the model, and load it again.

    python examples/train_with_trainer.py my-model

Texts of unlike length are padded to a batch. `sheafstate train` packs them into rows without padding instead.
"""

import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, DataCollatorForLanguageModeling, Trainer, TrainingArguments

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import load_tokenizer, read_documents

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 50

tokenizer = load_tokenizer("byte")
speeches = read_documents("tinyshakespeare")[0].split("\n\n")[:1000]
# the mark before a text is what its first byte is predicted from; the collator takes it for padding and no label
rows = Dataset.from_dict(tokenizer([f"<|endoftext|>{speech}" for speech in speeches], truncation=True, max_length=128))
parts = rows.train_test_split(test_size=16, shuffle=False)


def make_trainer() -> Trainer:
    torch.manual_seed(0)
    config = SheafStateConfig.from_preset(
        "tiny", vocab_size=len(tokenizer), heads={"local": 2, "retrieval": 2, "topic": 1}
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=steps // 2,
        save_steps=steps // 2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    return Trainer(
        model=SheafStateForCausalLM(config),
        args=arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        processing_class=tokenizer,
    )


def figures(trainer: Trainer, name: str) -> list[float]:
    return [record[name] for record in trainer.state.log_history if name in record]


trainer = make_trainer()
trainer.train()
print("validation, nats a byte:", *(f"{loss:.3f}" for loss in figures(trainer, "eval_loss")))

resumed = make_trainer()
resumed.train(resume_from_checkpoint=str(folder / f"checkpoint-{steps // 2}"))
assert figures(resumed, "loss") == figures(trainer, "loss"), "a run that was resumed is the run without a break"

trainer.save_model(folder)  # the tokenizer with it
again, model = AutoModelForCausalLM.from_pretrained(folder).eval(), trainer.model.eval()
ids = tokenizer("ROMEO:", return_tensors="pt").input_ids
assert torch.equal(again(ids).logits, model(ids).logits), "what is loaded is what was saved"
print(f"saved to {folder}")
