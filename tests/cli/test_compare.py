"""``sheafstate compare``: a plan is trained, told and drawn, and goes on where it stood."""

import json
from pathlib import Path

import pytest
import yaml

from sheafstate.cli import main
from sheafstate.data import read_documents


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["compare", *words])
    code = left.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    text = tmp_path / "text.txt"
    text.write_text(read_documents("tinyshakespeare")[0][:9000], encoding="utf-8")
    content = {
        "name": "small",
        "learning_rates": [0.003],
        "columns": ["parameters", "elements", "speed"],
        "tasks": {
            "text": {
                **{"kind": "text", "train": str(text), "tokenizer": "byte", "context": 32, "rows": 2, "steps": 2},
                **{"tune_steps": 1, "measured_contexts": [32, 64, 128], "measured_characters": 900},
                "by_position": True,
                "model": {"preset": "tiny", "num_layers": 1, "d_model": 32, "d_head": 16, "parameters": 60_000},
            }
        },
        "questions": {"peers": {"llama": {"peer": "llama", "width": 32, "layers": 1, "d_head": 16}}},
        "studies": [{"name": "A first look", "task": "text", "sides": ["base", "peers/*"], "seeds": [0]}],
    }
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_plan_is_trained_told_and_drawn(plan: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(str(plan), "--out", str(out), "--dry") == 0
    told = capfd.readouterr()
    assert "2 trainings to begin with; 2 count" in told.err
    assert not (out / "records.jsonl").exists()
    assert run(str(plan), "--out", str(out), "--json") == 0
    told = capfd.readouterr()
    summary = json.loads(told.out)
    assert told.err.count("full text") == 2
    assert [side["side"] for side in summary["studies"][0]["sides"]] == ["base", "peers/llama"]
    assert json.loads((out / "comparison.json").read_text()) == summary
    assert {path.name for path in out.glob("*.png")} == {"a-first-look-length.png", "a-first-look-position.png"}
    assert len((out / "records.jsonl").read_text().splitlines()) == 2
    assert run(str(plan), "--out", str(out)) == 0
    told = capfd.readouterr()
    assert "full text" not in told.err  # nothing is trained twice
    assert "peers/llama" in told.out
    assert "nats a token by position" in " ".join(told.out.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give a plan"),
        (("plan.yaml", "--quick"), "give a plan"),
        (("missing.yaml",), "cannot be read"),
        (("--quick", "--workers", "0"), "--workers"),
        (("--quick", "--minutes", "-1"), "--minutes"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) != 0
    told = capsys.readouterr().err
    assert sentence in told
    assert len(told.splitlines()) == 1


def test_the_packaged_plan_lists_every_side(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("--quick", "--dry") == 0
    told = capsys.readouterr().err
    for side in ("base", "peers/llama", "peers/mamba2", "peers/gated-delta-net", "site/complete, sheaf gluing"):
        assert side in told
