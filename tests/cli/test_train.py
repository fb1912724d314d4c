"""``sheafstate train``: from a command line to a folder."""

import inspect
import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from sheafstate.cli.train import train_command
from sheafstate.training import TrainingOptions

SMALL = ["--context", "16", "--batch-size", "4", "--steps", "3", "--quiet", "--cpu"]
for _setting in (
    "num_layers=1",
    "d_model=16",
    "d_head=4",
    "d_ff=8",
    "num_experts=0",
    'heads={"local": 1}',
    "heads.topic=1",
):
    SMALL += ["--set", _setting]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Speak, speak.\n" * 100 + "<|endoftext|>" + "All resolved rather to die.\n" * 10)
    return path


def test_defaults_are_those_of_the_options() -> None:
    """The command cannot read them from the options, which are slow to import."""
    names = {"compiled": "compile", "settings": "overrides", "quiet": "progress", "as_json": None}
    options = {name: parameter.default for name, parameter in inspect.signature(TrainingOptions).parameters.items()}
    command = inspect.signature(train_command).parameters
    assert {names.get(name, name) for name in command} - {None} == options.keys()
    for name, parameter in command.items():
        if name not in names:
            assert parameter.default == options[name], name


def test_it_trains(text: Path, tmp_path: Path, printed) -> None:
    out = tmp_path / "run"
    metrics = json.loads(printed("train", "--data", text, "--out", out, "--tokenizer", "bpe:300", *SMALL, "--json"))
    assert metrics == json.loads((out / "metrics.json").read_text())
    assert metrics["steps"] == 3
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.vocab_size == len(tokenizer) <= 300
    assert {kind: count for kind, count in model.config.heads.items() if count} == {"local": 1, "topic": 1}
    shown = printed("train", "--data", text, "--out", out, "--tokenizer", "bpe:300", *SMALL, "--resume")
    assert f"{metrics['val_bits_per_byte']:.4f}" in shown


def test_separators_are_read_with_line_breaks(text: Path, tmp_path: Path, printed) -> None:
    """All text is one line a document, so that the last documents are held out whole."""
    printed("train", "--data", text, "--out", tmp_path / "run", "--separator", "\\n", *SMALL, "--json")
    assert (tmp_path / "run/data/validation/stream.json").is_file()
    assert json.loads((tmp_path / "run/options.json").read_text())["separator"] == "\n"


REFUSED = [
    (["--preset", "huge", "--set", "window=3"], "preset must be one of"),
    (["--preset", "huge"], "preset must be one of"),
    (["--set", "windw=3"], "did you mean 'window'"),
    (["--set", "d_head=3"], "d_head must be even"),
    (["--set", "heads.nonsense=3"], "nonsense"),
    (["--tokenizer", "words"], "tokenizer must be byte, char"),
    (["--steps", "0"], "steps must be a whole number of at least 1"),
    (["--lr", "nan"], "learning_rate must be a number above 0"),
    (["--schedule", "linear"], "schedule must be one of"),
    (["--context", "100000"], "fewer than one row of 100000"),
    (["--batch-size", "5000"], "fewer than a batch of 5000"),
    (["--data", "nowhere.txt"], "nowhere.txt does not exist"),
    (["--resume", "--overwrite"], "not both"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_bad_input_is_one_sentence(arguments: list[str], reason: str, text: Path, tmp_path: Path, refused) -> None:
    assert reason in refused("train", "--data", text, "--out", tmp_path / "run", "--quiet", "--cpu", *arguments)
