"""A run that was stopped, killed or cut short goes on as if nothing had been."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import TrainerCallback

from sheafstate.errors import InputError
from sheafstate.training import last_checkpoint, train
from sheafstate.training.callbacks import read_history
from sheafstate.training.model import build_model

from .conftest import Witness, build_llama


def records(folder: Path) -> list[dict]:
    """The history without what depends on the clock."""
    return [{k: v for k, v in record.items() if k != "seconds"} for record in read_history(folder / "history.jsonl")]


def test_resuming_nothing_is_beginning(options, tmp_path) -> None:
    train(options(out=tmp_path / "one"))
    train(options(out=tmp_path / "two", resume=True))
    assert records(tmp_path / "one") == records(tmp_path / "two")


def test_a_finished_run_goes_on_to_more_steps(options, tmp_path) -> None:
    train(options(out=tmp_path / "one", schedule="constant", steps=10))
    train(options(out=tmp_path / "two", schedule="constant", steps=6, warmup=0.0))
    train(options(out=tmp_path / "two", schedule="constant", steps=10, warmup=0.0, resume=True))
    assert [record["step"] for record in records(tmp_path / "two") if "loss" in record] == list(range(1, 11))
    assert last_checkpoint(tmp_path / "two").name == "checkpoint-10"


def test_a_finished_run_that_is_resumed_makes_no_step(options, tmp_path) -> None:
    out = tmp_path / "run"
    first = train(options(out=out, steps=5))
    before = records(out)
    (out / "model.safetensors").unlink()  # a run killed after its last checkpoint, before its export
    again = train(options(out=out, steps=5, resume=True))
    assert again.metrics["steps"] == 5
    assert again.metrics["train_tokens"] == first.metrics["train_tokens"]
    assert again.metrics["val_nats_per_token"] == first.metrics["val_nats_per_token"]
    assert records(out) == before
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name
    assert (out / "model.safetensors").is_file()


def test_a_resumed_run_takes_its_own_intervals(options, tmp_path) -> None:
    train(options(steps=4, save_every=4, keep_checkpoints=9))
    train(options(steps=10, save_every=3, keep_checkpoints=9, resume=True))
    found = sorted(int(path.name.rpartition("-")[2]) for path in (tmp_path / "run").glob("checkpoint-*"))
    assert found == [4, 6, 9, 10]


@pytest.mark.parametrize(
    "change", [{"context": 8}, {"seed": 9}, {"batch_size": 2}, {"learning_rate": 0.5}, {"tokenizer": "char"}]
)
def test_another_run_is_not_resumed(options, change: dict) -> None:
    train(options())
    (name,) = change
    with pytest.raises(InputError, match=f"a resumed run must keep {name}: it was"):
        train(options(resume=True, **change))


def test_another_text_is_not_resumed(options, tmp_path, page) -> None:
    copy = tmp_path / "copy.txt"
    shutil.copy(page, copy)
    train(options(data=copy))
    train(options(data=page, resume=True, steps=5))  # the same text in another place
    copy.write_text(copy.read_text().replace("e", "a"))
    with pytest.raises(InputError, match=r"not the text that the run .* began with"):
        train(options(data=copy, resume=True))


def test_a_checkpoint_of_another_model_is_refused(options) -> None:
    train(options())
    with pytest.raises(InputError, match="another model than the one that is trained: they differ in"):
        train(options(steps=8, resume=True), build=build_llama)


def truncate(checkpoint: Path) -> None:
    os.truncate(checkpoint / "model.safetensors", 100)


def lose(checkpoint: Path) -> None:
    (checkpoint / "optimizer.pt").unlink()


def leave_unfinished(checkpoint: Path) -> None:
    (checkpoint / "complete.json").unlink()


def break_the_list(checkpoint: Path) -> None:
    (checkpoint / "complete.json").write_text('{"model.safe')


def leave_nothing(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


@pytest.mark.parametrize("damage", [truncate, lose, leave_unfinished, break_the_list, leave_nothing])
def test_what_is_not_whole_is_not_resumed(damage, options, tmp_path) -> None:
    witness = Witness(build_model)
    train(options(steps=9, save_every=3))
    damage(tmp_path / "run/checkpoint-9")
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-6"
    train(options(steps=9, save_every=3, resume=True), build=witness)
    assert len(witness.batches) == 3
    assert [record["step"] for record in records(tmp_path / "run") if "loss" in record] == list(range(1, 10))
    assert last_checkpoint(tmp_path / "run").name == "checkpoint-9"


def test_a_kill_in_the_middle_of_a_save(options, tmp_path) -> None:
    train(options(out=tmp_path / "straight", steps=12, save_every=4))
    settings = options(steps=12, save_every=4).record()
    script = textwrap.dedent(
        """
        import json, os, signal, sys
        import torch
        from sheafstate.training import TrainingOptions, train

        whole_save, saves = torch.save, []

        def save(value, path, *rest, **more):
            saves.append(path)
            whole_save(value, path, *rest, **more)
            if "checkpoint-8" in str(path):
                os.truncate(path, os.path.getsize(path) // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        torch.save = save
        torch.set_num_threads(1)
        train(TrainingOptions(**json.loads(sys.argv[1])))
        """
    )
    killed = subprocess.run([sys.executable, "-c", script, json.dumps(settings)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    run = tmp_path / "run"
    assert list((run / ".saving/checkpoint-8").iterdir()), "the kill came while files were being written"
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-4"]
    assert last_checkpoint(run).name == "checkpoint-4"
    train(options(steps=12, save_every=4, resume=True))
    assert records(run) == records(tmp_path / "straight")
    assert not (run / ".saving").exists() or not list((run / ".saving").iterdir())


class FillTheDisk(TrainerCallback):
    """Lets no file grow past a size from some step on, as a full disk or a quota would."""

    def __init__(self, step: int, size: int) -> None:
        self.step, self.size = step, size

    def on_step_begin(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))


@pytest.fixture
def _room_again():
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [20_000, 50_000], ids=["in-the-weights", "in-the-optimiser"])
@pytest.mark.usefixtures("_room_again")
def test_a_full_disk_is_a_sentence_and_loses_nothing(size: int, options, tmp_path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InputError, match=r"the checkpoint could not be written to .*last whole checkpoint is .*-4$"):
        train(options(steps=12, save_every=4, log_every=100), callbacks=[FillTheDisk(6, size)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert last_checkpoint(run).name == "checkpoint-4"
    assert not (run / ".saving").exists()
    train(options(steps=12, save_every=4, log_every=100, resume=True))
    assert last_checkpoint(run).name == "checkpoint-12"


@pytest.mark.usefixtures("_room_again")
def test_a_full_disk_leaves_an_earlier_export(options, tmp_path) -> None:
    run = tmp_path / "run"
    train(options(steps=4, save_every=100))
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}

    class FillAfterTheLastSave(TrainerCallback):
        def on_train_end(self, args, state, control, **kwargs) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))

    with pytest.raises(InputError, match="the model could not be written"):
        train(options(steps=8, save_every=100, resume=True), callbacks=[FillAfterTheLastSave()])
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for name in ("config.json", "model.safetensors", "tokenizer.json", "metrics.json"):
        assert (run / name).read_bytes() == before[name]


def test_resume_files_that_hold_code_are_not_run(options, tmp_path) -> None:
    """A pickle that would run a command in place of the optimiser's state."""
    run = tmp_path / "run"
    train(options(steps=4, save_every=2))
    marker = tmp_path / "ran"

    class Command:
        def __reduce__(self):
            return os.system, (f"touch {marker}",)

    target = run / "checkpoint-4/optimizer.pt"
    torch.save(Command(), target)
    sizes = json.loads((run / "checkpoint-4/complete.json").read_text())
    sizes["optimizer.pt"] = target.stat().st_size
    (run / "checkpoint-4/complete.json").write_text(json.dumps(sizes))
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        train(options(steps=8, resume=True))
    assert not marker.exists()
