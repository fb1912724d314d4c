"""What somebody does who has installed the package and nothing else, in the folder where this is run.

``test_environment_install.py`` runs it with the Python of a new environment; it knows neither the source nor the tests.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import sheafstate
from sheafstate.cli import main

TEXT = "First Citizen:\nSpeak."
TOKENIZERS = {"byte": "byte", "char": "char", "bpe": "bpe:300"}
SMALL = ("d_model=16", "num_layers=2", "d_head=4", "d_ff=16", "d_expert=8")
SHARE = "0.001"


def command(*words: str) -> None:
    """One command of the command line, which must succeed."""
    status = None
    try:
        main([*words])
    except SystemExit as left:
        status = left.code
    assert status == 0, words


def train(tokenizer: str, out: str) -> None:
    sizes = [word for setting in SMALL for word in ("--set", setting)]
    shape = ("--steps", "5", "--save-every", "3", "--context", "32", "--batch-size", "2", *sizes)
    data = ("--data", "tinyshakespeare", "--validation-share", SHARE, "--tokenizer", tokenizer)
    command("train", *data, "--out", out, "--quiet", *shape)


def every_command() -> None:
    command("estimate")
    command("simulate", "--length", "512", "--out", "simulation")
    for name, tokenizer in TOKENIZERS.items():
        train(tokenizer, name)
    command("evaluate", "byte", "--data", "tinyshakespeare", "--validation-share", SHARE)
    command("generate", "byte", "ROMEO:", "--max-new-tokens", "8")
    command("inspect", "byte", "To be, or not", "--out", "byte")
    command("report", "byte")
    command("generate", "--max-new-tokens", "8")
    command("inspect", "novels", "It was, it was not.")
    command("export", "byte", "packed", "--quantization", "int4")
    assert "</html>" in Path("byte/report.html").read_text(encoding="utf-8")


def somebody_elses() -> None:
    """A Llama that the package takes over."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained("byte")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained("llama")
    tokenizer.save_pretrained("llama")
    command("import-llama", "llama", "imported")


def five_steps() -> None:
    """A model from the Auto classes, trained, saved and loaded in Python."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model("sheafstate", vocab_size=256, d_model=16, num_layers=1, d_head=4)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    ids = torch.tensor([list(TEXT.encode())])
    losses = []
    for _ in range(5):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    model.eval().save_pretrained("mine")
    again = AutoModelForCausalLM.from_pretrained("mine").eval()
    assert torch.equal(again(ids).logits, model(ids).logits)


def every_checkpoint() -> None:
    """Whatever folder was written as a checkpoint has a tokenizer and a model that speak."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folders = {path.parent for path in Path().rglob("config.json")} - {Path("mine")}
    assert {str(folder) for folder in folders} >= {*TOKENIZERS, "byte/checkpoint-3", "packed", "imported"}
    for folder in sorted(folders):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(TEXT, return_tensors="pt").input_ids
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == TEXT, folder
        spoken = AutoModelForCausalLM.from_pretrained(folder).generate(ids, max_new_tokens=4, do_sample=False)
        assert spoken.shape[1] > ids.shape[1], folder


if __name__ == "__main__":
    assert Path(sheafstate.__file__).is_relative_to(sys.prefix), sheafstate.__file__
    assert version("sheafstate") == sheafstate.__version__
    every_command()
    somebody_elses()
    five_steps()
    every_checkpoint()
