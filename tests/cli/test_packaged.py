"""The packaged model: small, documented, used by name, and as good as its card says."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sheafstate.cli.arguments import PACKAGED
from sheafstate.evaluation import PACKAGED_MODELS, checkpoint_folder

MOST_BYTES = 8_000_000
PASSAGE = "Elizabeth looked at Mr. Darcy, but Darcy said nothing."


@pytest.fixture
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def card() -> str:
    return (checkpoint_folder(PACKAGED) / "README.md").read_text(encoding="utf-8")


def test_it_is_small_and_holds_no_code() -> None:
    assert (str(PACKAGED),) == PACKAGED_MODELS
    files = [path for path in checkpoint_folder(PACKAGED).rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors", ".md"}
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    config = json.loads((checkpoint_folder(PACKAGED) / "config.json").read_text(encoding="utf-8"))
    assert config["packed_weights"]
    assert config["quantization"] in ("int8", "int4")


def test_a_text_is_written_with_no_training(anywhere: Path, printed) -> None:
    options = ("--greedy", "--max-new-tokens", "24", "--threads", "1", "--json")
    unnamed = json.loads(printed("generate", *options))
    assert unnamed["tokens"] == 24
    assert json.loads(printed("generate", "novels", *options))["text"] == unnamed["text"]
    told = json.loads(printed("generate", "novels", "She looked at him, and", *options))
    words = re.findall(r"[a-z]+", told["text"].lower())
    assert len(set(words)) > 6
    assert {"the", "a", "he", "she", "it", "her", "his"} & set(words)
    assert not list(anywhere.iterdir())


def test_its_site_is_shown(anywhere: Path, printed) -> None:
    site = json.loads(printed("inspect", "novels", PASSAGE, "--threads", "1", "--json"))
    assert "".join(site["tokens"]) == PASSAGE
    assert len(site["layers"]) == 4


def test_a_folder_of_that_name_goes_before(anywhere: Path, refused) -> None:
    (anywhere / "novels").mkdir()
    assert "novels holds no checkpoint" in refused("generate", "novels")


def test_a_name_that_is_none_is_told_what_there_is(anywhere: Path, refused) -> None:
    assert "nvels does not exist (packaged models: novels)" in refused("generate", "nvels")


@pytest.mark.slow
def test_the_card_says_what_is_measured(anywhere: Path, printed) -> None:
    """The held-out tenth of the packaged text, which was not trained on."""
    said = re.search(r"Shakespeare, the last tenth \| ([\d.]+)", card())
    assert said is not None
    record = json.loads(
        printed("evaluate", "novels", "--data", "tinyshakespeare", "--validation-share", "0.1", "--json")
    )
    assert record["bits_per_byte"] == pytest.approx(float(said[1]), abs=6e-4)


def test_it_loads_with_the_auto_classes() -> None:
    folder = checkpoint_folder(PACKAGED)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(PASSAGE, return_tensors="pt").input_ids
    with torch.no_grad():
        assert model(ids, labels=ids).loss < 5.0  # log of the vocabulary is 8.3
