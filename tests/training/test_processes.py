"""Two processes that share each step's rows are one process that computes them all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sheafstate.training import TrainingOptions, last_checkpoint, train
from sheafstate.training.callbacks import read_history

from .conftest import BATCH, CONTEXT, SMALL, STEPS_OF_AN_EPOCH

STEPS = STEPS_OF_AN_EPOCH + 3
SETTINGS = [f"{name}={json.dumps(value)}" for name, value in SMALL.items()]


def launch(processes: int, data: Path, held_out: Path, out: Path, *more: str) -> dict:
    """Run ``sheafstate train`` under torchrun; return what it prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "sheafstate", "train", "--data", str(data), "--validation-data", str(held_out), "--out", str(out)]
    command += ["--context", str(CONTEXT), "--batch-size", str(BATCH), "--steps", str(STEPS), "--lr", "1e-2"]
    command += ["--log-every", "1", "--save-every", "5", "--cpu", "--quiet", "--json", *more]
    for setting in SETTINGS:
        command += ["--set", setting]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runs(page, held_out, tmp_path_factory) -> tuple[dict, dict, Path]:
    folder = tmp_path_factory.mktemp("processes")
    options = {"data": page, "validation_data": held_out, "context": CONTEXT, "batch_size": BATCH, "steps": STEPS}
    options |= {
        "learning_rate": 1e-2,
        "log_every": 1,
        "save_every": 5,
        "overrides": SMALL,
        "progress": False,
        "cpu": True,
    }
    one = train(TrainingOptions(out=folder / "one", **options)).metrics
    return one, launch(2, page, held_out, folder / "two"), folder


def figures(run: Path, name: str) -> list[float]:
    return [record[name] for record in read_history(run / "history.jsonl") if name in record]


def test_two_processes_give_the_losses_of_one(runs) -> None:
    one, two, folder = runs
    assert two["processes"] == 2
    for name, near in {"loss": 1e-5, "val_nats_per_token": 1e-5, "val_bits_per_byte": 1e-5, "grad_norm": 1e-3}.items():
        assert figures(folder / "two", name) == pytest.approx(figures(folder / "one", name), rel=near)
    assert figures(folder / "two", "learning_rate") == figures(folder / "one", "learning_rate")
    assert two["train_tokens"] == one["train_tokens"]
    assert two["val_bits_per_byte"] == pytest.approx(one["val_bits_per_byte"], rel=1e-5)


def test_one_process_writes_for_both(runs) -> None:
    _, two, folder = runs
    assert json.loads((folder / "two/metrics.json").read_text()) == two
    checkpoint = last_checkpoint(folder / "two")
    assert checkpoint.name == f"checkpoint-{STEPS}"
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in checkpoint.iterdir()}
    assert len([record for record in read_history(folder / "two/history.jsonl") if "loss" in record]) == STEPS
    assert len(list((folder / "two/logs").iterdir())) == 1


@pytest.mark.slow
def test_two_processes_resume(runs, page, held_out) -> None:
    *_, folder = runs
    whole = figures(folder / "two", "loss")
    (folder / "two" / f"checkpoint-{STEPS}" / "complete.json").unlink()
    launch(2, page, held_out, folder / "two", "--resume")
    assert figures(folder / "two", "loss") == whole
