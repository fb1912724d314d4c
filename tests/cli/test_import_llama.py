"""``sheafstate import-llama``: a folder with a Llama becomes one with our model, or one sentence says why not."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sheafstate import SheafStateForCausalLM
from tests.checkpoints import save_small_llama


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_llama(tmp_path_factory.mktemp("llama"))


@torch.no_grad()
def test_what_is_written_is_the_llama(llama: Path, tmp_path: Path, printed) -> None:
    out = tmp_path / "new" / "folder"
    record = json.loads(printed("import-llama", llama, out, "--json"))
    ours, theirs = (AutoModelForCausalLM.from_pretrained(folder).eval() for folder in (out, llama))
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert isinstance(ours, SheafStateForCausalLM)
    ids = tokenizer("Speak, I charge thee.", return_tensors="pt").input_ids
    torch.testing.assert_close(ours(ids).logits, theirs(ids).logits, rtol=0, atol=1e-4)
    assert record["parameters"] == sum(p.numel() for p in ours.parameters())
    assert (record["heads"], record["site"], record["window"]) == (4, "complete", None)
    assert not list(out.glob("*.bin"))
    written = json.loads(printed("generate", out, "Speak", "--greedy", "--max-new-tokens", "5", "--json"))
    begun = tokenizer("Speak", return_tensors="pt").input_ids
    tokens = theirs.generate(begun, max_new_tokens=5, do_sample=False)[0, begun.shape[1] :]
    assert written["text"] == tokenizer.decode(tokens, skip_special_tokens=True)


def test_a_window_can_be_set(llama: Path, tmp_path: Path, printed) -> None:
    assert "each reading the last 8 positions" in printed("import-llama", llama, tmp_path / "out", "--window", "8")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model.config.site, model.config.window) == ("window", 8)


def test_nothing_is_overwritten(llama: Path, tmp_path: Path, refused) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"precious")
    for out in (tmp_path / "mine", tmp_path / "mine" / "model.safetensors", llama):
        assert f"{out} must be a new or an empty folder" in refused("import-llama", llama, out)
    assert (tmp_path / "mine" / "model.safetensors").read_bytes() == b"precious"


def test_what_is_no_llama_is_one_sentence(checkpoint: Path, llama: Path, tmp_path: Path, refused) -> None:
    out = tmp_path / "out"
    assert "does not exist" in refused("import-llama", tmp_path / "nowhere", out)
    assert "not a SheafStateForCausalLM" in refused("import-llama", checkpoint, out)
    scaled = shutil.copytree(llama, tmp_path / "scaled")
    config = json.loads((scaled / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    (scaled / "config.json").write_text(json.dumps(config))
    assert "rotary scaling of type 'linear' cannot be expressed" in refused("import-llama", scaled, out)
    assert not out.exists()
