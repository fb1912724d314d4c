"""``sheafstate export``: a packed checkpoint in a folder of its own, and nothing overwritten."""

import json
from pathlib import Path

import pytest
import torch

from sheafstate.evaluation import load_checkpoint
from sheafstate.nn.quant_linear import PackedLinear


@pytest.mark.parametrize("mode", ["int8", "int4", "ternary"])
def test_a_packed_checkpoint_is_a_checkpoint(checkpoint: Path, tmp_path: Path, printed, mode: str) -> None:
    out, text = tmp_path / "new" / "packed", tmp_path / "text.txt"
    text.write_text("To be, or not to be, that is the question.")
    record = json.loads(printed("export", checkpoint, out, "--quantization", mode, "--data", text, "--json"))
    assert record["quantization"] == mode
    assert record["bytes_by_formula"] <= record["bytes"] < record["bytes_before"]
    model, tokenizer = load_checkpoint(out)
    assert isinstance(model.model.layers[0].in_proj, PackedLinear)
    assert tokenizer.decode(tokenizer("Speak").input_ids) == "Speak"
    measured = json.loads(printed("evaluate", out, "--data", text, "--json"))
    assert measured["bits_per_byte"] == pytest.approx(record["bits_per_byte"][1], rel=1e-6)
    assert "Speak" in printed("generate", out, "Speak", "--max-new-tokens", "5")


def test_the_table_shows_sizes(checkpoint: Path, tmp_path: Path, printed) -> None:
    shown = printed("export", checkpoint, tmp_path / "packed", "-q", "int4")
    assert "weights on disk" in shown
    assert "KiB" in shown


def test_the_source_is_left_alone_and_nothing_is_overwritten(checkpoint: Path, tmp_path: Path, refused) -> None:
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}
    assert "exists already" in refused("export", checkpoint, checkpoint, "-q", "int8")
    (tmp_path / "file").write_text("mine")
    assert "exists already" in refused("export", checkpoint, tmp_path / "file", "-q", "int8")
    assert "one of int8, int4, ternary" in refused("export", checkpoint, tmp_path / "new")
    assert "not 'int2'" in refused("export", checkpoint, tmp_path / "new", "-q", "int2")
    assert not (tmp_path / "new").exists()
    assert before == {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}


def test_a_packed_model_is_packed_once(checkpoint: Path, tmp_path: Path, printed, refused) -> None:
    printed("export", checkpoint, tmp_path / "once", "-q", "int8")
    assert "packed already, as int8" in refused("export", tmp_path / "once", tmp_path / "twice", "-q", "int4")


def test_damaged_scales_are_refused(checkpoint: Path, tmp_path: Path, printed, refused) -> None:
    from safetensors.torch import load_file, save_file

    printed("export", checkpoint, tmp_path / "packed", "-q", "int8")
    weights = load_file(tmp_path / "packed" / "model.safetensors")
    weights["model.layers.0.in_proj.scale"][0] = torch.nan
    save_file(weights, tmp_path / "packed" / "model.safetensors", metadata={"format": "pt"})
    assert "no finite numbers" in refused("generate", tmp_path / "packed", "Speak")
