"""``sheafstate report``: a page and figures from the files of a run."""

import json
from pathlib import Path

import pytest


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.json").write_text(json.dumps({"val_nats_per_token": 1.5}))
    line = {"step": 1, "tokens": 10, "loss": 2.0, "learning_rate": 1e-3}
    (folder / "history.jsonl").write_text(json.dumps(line) + "\n")
    return folder


def test_it_writes_a_page_and_figures(run: Path, printed, tmp_path: Path) -> None:
    shown = printed("report", run, "--title", "Mine & yours", "--images", tmp_path / "figures")
    page, figure = run / "report.html", tmp_path / "figures" / "loss.png"
    assert shown == f"wrote {page}\nwrote {figure}\n"
    assert "<h1>Mine &amp; yours</h1>" in page.read_text(encoding="utf-8")
    assert figure.is_file()


def test_a_page_alone(run: Path, printed) -> None:
    assert printed("report", run) == f"wrote {run / 'report.html'}\n"
    assert "Run run" in (run / "report.html").read_text(encoding="utf-8")


def test_bad_input_is_one_sentence(run: Path, refused, tmp_path: Path) -> None:
    assert "is not the folder of a run" in refused("report", tmp_path / "nothing")
    (run / "metrics.json").write_text("{")
    assert "metrics.json is not JSON" in refused("report", run)
