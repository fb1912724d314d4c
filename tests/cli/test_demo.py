"""``sheafstate demo``: all of it on a short text, what an interruption leaves, and folders that are not its own."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from sheafstate import training
from sheafstate.cli import demo_plan, demo_stages, main
from sheafstate.cli.demo_folder import MARK, RESULTS, claim
from sheafstate.cli.demo_plan import FOCUS, PASSAGE, DemoPlan
from sheafstate.data import read_corpus, read_documents

LEFT = {"config.json", "model.safetensors", "tokenizer.json", "metrics.json", "history.jsonl", MARK, *RESULTS}

STEPS = 3


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lets the demo learn from a little text and simulate short sequences."""
    text = tmp_path / "text.txt"
    text.write_text(read_documents("tinyshakespeare")[0][:12_000], encoding="utf-8")
    plan = functools.partial(DemoPlan, data=text, lengths=(2048, 1024), characters=30)
    monkeypatch.setattr(demo_plan, "DemoPlan", plan)


def demo(out: Path, *arguments: object) -> int:
    with pytest.raises(SystemExit) as left:
        main(["demo", "--out", str(out), "--steps", str(STEPS), "--threads", "1", *map(str, arguments)])
    return left.value.code


def stop(*_: object) -> None:
    raise KeyboardInterrupt


class StopAfterTwo(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == 2:
            stop()


def test_stopped_and_gone_on_it_leaves_everything(short, tmp_path: Path, monkeypatch, capsys) -> None:
    out, text = tmp_path / "runs" / "demo", tmp_path / "text.txt"
    with monkeypatch.context() as patch:
        patch.setattr(training, "train", functools.partial(training.train, callbacks=[StopAfterTwo()]))
        assert demo(out) == 130
    assert "Stopped" in capsys.readouterr().out
    began = (out / "history.jsonl").read_text().splitlines()[0]
    (out / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(demo_stages, "report", stop)
        assert demo(out) == 130
    assert "stopped here; going on" in capsys.readouterr().out
    assert (out / "history.jsonl").read_text().splitlines()[0] == began
    assert not (out / "report.html").exists()

    assert demo(out) == 0
    shown = capsys.readouterr().out
    assert "its model is taken" in shown
    assert {path.name for path in out.iterdir()} >= LEFT
    check_files(out)
    loss = json.loads((out / "metrics.json").read_text())["val_nats_per_token"]
    for said in ("2,048 positions", "1.88", f"{loss:.3f}", "retrieval", "To try next", str(out / "report.html")):
        assert said in shown

    assert not claim(out, DemoPlan(out, steps=STEPS, data=text).training())
    assert not {path.name for path in out.iterdir()} & set(RESULTS)
    for other in ({"steps": STEPS + 1}, {"steps": STEPS, "seed": 1}):
        assert not claim(out, DemoPlan(out, data=text, **other).training())
    assert claim(out, DemoPlan(out, steps=STEPS, data=text).training())
    assert (out / "notes.txt").read_text() == "mine"


def check_files(out: Path) -> None:
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["train_tokens"] == STEPS * 2048
    assert metrics["references"] == {"nanoGPT, CPU recipe": 1.88}
    assert {"val_nats_per_token", "val_bits_per_byte", "seconds", "parameters"} <= metrics.keys()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    assert len(tokenizer) == model.config.vocab_size == 257
    sample = json.loads((out / "sample.json").read_text())
    assert len(tokenizer(sample["text"]).input_ids) >= 30
    site = json.loads((out / "site.json").read_text())
    assert "".join(site["tokens"][: site["focus"] + 1]).endswith(FOCUS)
    page = (out / "report.html").read_text(encoding="utf-8")
    for title in ("How much of a dense site", "Training", "What it writes", "site of a passage"):
        assert title in page


def test_a_folder_of_others_is_left_alone(tmp_path: Path, refused) -> None:
    (tmp_path / "data").mkdir()
    precious = tmp_path / "data" / "thesis.txt"
    precious.write_text("mine")
    assert "holds files that no demo left" in refused("demo", "--out", tmp_path)
    (tmp_path / MARK).write_text('{"kind": "another"}')
    assert "holds files that no demo left" in refused("demo", "--out", tmp_path)
    assert precious.read_text() == "mine"
    assert "is a file" in refused("demo", "--out", precious)
    assert "steps must be at least 1, not 0" in refused("demo", "--out", tmp_path / "new", "--steps", 0)
    assert not (tmp_path / "new").exists()


def test_the_passage_is_validation_text() -> None:
    held_out = read_corpus("tinyshakespeare", share=DemoPlan(Path("out"), 1).training().validation_share).validation[0]
    assert PASSAGE in held_out
    assert PASSAGE.count("Kathar") == 2
    assert PASSAGE.count(FOCUS) == 1


def test_its_budget_is_that_of_the_recipe_it_names() -> None:
    training = DemoPlan(Path("out"), 750).training()
    assert training.steps * training.batch_size * training.context == 2000 * 12 * 64


@pytest.mark.slow
def test_the_command_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sheafstate", "demo", "--steps", "3", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "67,902 true edges" in done.stdout
    assert "To try next" in done.stdout
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= LEFT
