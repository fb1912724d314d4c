"""``sheafstate evaluate``: bits per byte of a text, by either reading."""

import json
from pathlib import Path

import pytest

from sheafstate.evaluation import evaluate, load_checkpoint


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Speak, speak.\n<|endoftext|>\nAll resolved rather to die.")
    return path


DOCUMENTS = ["Speak, speak.", "All resolved rather to die."]


def test_it_prints_the_figures(checkpoint: Path, text: Path, printed) -> None:
    record = json.loads(printed("evaluate", checkpoint, "--data", text, "--json"))
    metrics = evaluate(*load_checkpoint(checkpoint), DOCUMENTS)
    assert {name: record[name] for name in metrics.record()} == metrics.record()
    assert (record["reading"], record["context"], record["stride"]) == ("carried", 1024, None)
    assert f"{metrics.bits_per_byte:.4f}" in printed("evaluate", checkpoint, "--data", text)


def test_windows_on_request(checkpoint: Path, text: Path, printed) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    for arguments, how in (
        (["--windows", "--context", "8"], {"context": 8, "carry": False}),
        (["--context", "8", "--stride", "4"], {"context": 8, "stride": 4}),
    ):
        record = json.loads(printed("evaluate", checkpoint, "--data", text, "--json", *arguments))
        assert record["nats"] == pytest.approx(evaluate(model, tokenizer, DOCUMENTS, **how).nats)
        assert record["reading"] == "windows"


def test_it_repeats_the_figure_of_a_run(tmp_path: Path, printed) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Speak, speak.\n" * 40)
    small = ["num_layers=1", "d_model=16", "d_head=4", "d_ff=8", "num_experts=0", 'heads={"local": 1}']
    settings = [part for setting in small for part in ("--set", setting)]
    run = ["--context", "16", "--batch-size", "4", "--steps", "2", "--validation-share", "0.2", "--quiet", "--cpu"]
    metrics = json.loads(printed("train", "--data", text, "--out", tmp_path / "run", *run, *settings, "--json"))
    again = ["--data", text, "--validation-share", "0.2", "--windows", "--json"]
    record = json.loads(printed("evaluate", tmp_path / "run", *again))
    assert record["context"] == 16
    assert record["bits_per_byte"] == pytest.approx(metrics["val_bits_per_byte"], rel=1e-6)


def test_the_separator_and_the_share_are_options(checkpoint: Path, text: Path, printed) -> None:
    whole = json.loads(printed("evaluate", checkpoint, "--data", text, "--separator", "", "--json"))
    assert whole["bytes"] == len(text.read_bytes())
    last = json.loads(printed("evaluate", checkpoint, "--data", text, "--validation-share", "0.5", "--json"))
    assert last["bytes"] == len(DOCUMENTS[1])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--data", "nowhere.txt"], "nowhere.txt does not exist"),
        (["--carry", "--stride", "3"], "a stride is for windows"),
        (["--context", "4", "--stride", "5"], "stride must be between 1 and the context (4)"),
        (["--validation-share", "1"], "share must be at least 0 and below 1"),
        (["--validation-share", "0"], "no text to measure on"),
        (["--context", "0"], "context"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], reason: str, checkpoint: Path, text: Path, refused) -> None:
    assert reason in refused("evaluate", checkpoint, "--data", text, *arguments)
