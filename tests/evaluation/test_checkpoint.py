"""A checkpoint loads whole, or one sentence says what is wrong with it; nothing in it is run."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sheafstate.data import load_tokenizer
from sheafstate.errors import InputError
from sheafstate.evaluation import check_fit, load_checkpoint
from tests.variants import make_model


@pytest.fixture
def folder(tmp_path: Path, models, tokenizer) -> Path:
    models["sheaf"].save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def change_configuration(folder: Path, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_weights(folder: Path, change) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_it_loads_what_was_saved(folder: Path, models, tokenizer) -> None:
    model, loaded = load_checkpoint(folder)
    assert not model.training
    ids = torch.arange(20)[None]
    assert torch.equal(model(ids).logits, models["sheaf"](ids).logits)
    assert loaded("Hark!").input_ids == tokenizer("Hark!").input_ids


def poison(weights: dict) -> None:
    weights["model.norm.weight"][3] = float("nan")


def lose(weights: dict) -> None:
    del weights["model.norm.weight"]


def widen(weights: dict) -> None:
    weights["model.norm.weight"] = torch.ones(99)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (poison, "norm.weight holds values that are no finite"),
        (lose, r"lacks weights: model\.norm\.weight$"),
        (widen, "cannot be loaded"),
    ],
)
def test_bad_weights_are_refused(folder: Path, change, reason: str) -> None:
    change_weights(folder, change)
    with pytest.raises(InputError, match=reason):
        load_checkpoint(folder)


@pytest.mark.parametrize("size", [0, 5, 200, -10])
def test_a_file_that_was_cut_short_is_refused(folder: Path, size: int) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)
    with pytest.raises(InputError, match="cannot be loaded") as caught:
        load_checkpoint(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{", "[]", '"text"', "{}", '{"model_type": 3}', "\x00\xff"])
def test_a_damaged_configuration_is_refused(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(InputError, match=r"config\.json"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "fields", [{"model_type": "unheard-of"}, {"num_addresses": 3}, {"heads": {}}, {"d_model": "wide"}]
)
def test_an_impossible_configuration_is_refused(folder: Path, fields: dict) -> None:
    change_configuration(folder, **fields)
    with pytest.raises(InputError, match="cannot be loaded"):
        load_checkpoint(folder)


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        load_checkpoint(folder / "nowhere")
    with pytest.raises(InputError, match=r"config\.json is a file, not the folder"):
        load_checkpoint(folder / "config.json")
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (folder / name).unlink()
        with pytest.raises(InputError, match=name.replace(".", r"\.")):
            load_checkpoint(folder)


def test_a_tokenizer_that_does_not_fit_is_refused_with_both_sizes(folder: Path) -> None:
    load_tokenizer("char", ["some letters"]).save_pretrained(folder)
    size = len(load_tokenizer("char", ["some letters"]))
    with pytest.raises(InputError, match=f"has {size} tokens, the model 257"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("size", "fits"), [(257, True), (320, True), (384, True), (256, False), (258, False), (512, False)]
)
def test_a_padded_vocabulary_fits(size: int, fits: bool, tokenizer) -> None:
    model = make_model("mixture", torch.float32, vocab_size=size)
    if fits:
        check_fit(model, tokenizer)
    else:
        with pytest.raises(InputError, match=f"has 257 tokens, the model {size}"):
            check_fit(model, tokenizer)


def test_a_pickle_is_not_loaded(folder: Path) -> None:
    class Command:
        def __reduce__(self):
            return os.system, (f"touch {folder / 'ran'}",)

    torch.save({"model.norm.weight": Command()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be loaded"):
        load_checkpoint(folder)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("kind", ["unheard-of", "sheafstate", "vit"])
def test_a_strangers_code_is_not_run(folder: Path, kind: str, monkeypatch) -> None:
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    places = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    change_configuration(folder, model_type=kind, auto_map=places)
    monkeypatch.setattr("builtins.input", lambda _: "y")  # a person who agrees to everything
    with pytest.raises(InputError, match="code of its own"):
        load_checkpoint(folder)
    assert not (folder / "ran").exists()
