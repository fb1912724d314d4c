"""A kill at any moment leaves the last whole checkpoint to be found, and nothing half-written is taken for one."""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sheafstate.cli import main
from sheafstate.training import last_checkpoint
from sheafstate.training.checkpoints import publish, remove_older
from tests.variants import examples

from .promises import Mutation, contract
from .slow_files import write_slowly
from .small_runs import contents, losses, train_arguments, write_page

KILLED = 9
EVENTS = frozenset({"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"})

UNLISTED = Mutation(
    "training/checkpoints.py",
    "bool(sizes) and all((checkpoint / name).stat().st_size == size for name, size in sizes.items())",
    "all((checkpoint / name).exists() for name in sizes)",
    "files of a checkpoint are taken for whole if they are there",
)


def killed_at(operation: int, work: Callable[[], None], folder: Path) -> bool:
    """Run in a process of its own that ends, without a word, at its n-th operation on files of a folder."""
    child = os.fork()
    if not child:
        count = 0

        def tick(event: str, arguments: tuple) -> None:
            nonlocal count
            inside = any(isinstance(part, str | os.PathLike) and str(folder) in str(part) for part in arguments)
            if event in EVENTS and inside:
                count += 1
                if count == operation:
                    os._exit(KILLED)

        write_text = Path.write_text

        def in_halves(path: Path, text: str, **more: str) -> None:
            write_text(path, text[: len(text) // 2], **more)
            tick("open", (str(path),))
            write_text(path, text, **more)

        Path.write_text = in_halves
        sys.addaudithook(tick)
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def wait_for_a_step(run: Path, after: int, began: float, limit: float = 120.0) -> None:
    """Until a process that began then has made a step after another one: not only its start is to be killed."""
    history = run / "history.jsonl"
    while time.time() < began + limit:
        if history.is_file() and history.stat().st_mtime > began and any(x["step"] > after for x in losses(run)[-1:]):
            return
        time.sleep(0.02)


def fill(folder: Path, step: int, files: int) -> Path:
    """Files as a checkpoint of a step has them."""
    folder.mkdir(parents=True)
    for number in range(files):
        (folder / f"file-{number}").write_bytes(f"{step}-{number}".encode() * (1 + number))
    return folder


@contract(19, 26, breaks=UNLISTED)
@example(whole=[6], damaged=[12], files=1, keep=1)
@given(
    whole=st.lists(st.integers(1, 8), max_size=3, unique=True),
    damaged=st.lists(st.integers(1, 12), max_size=2, unique=True),
    files=st.integers(1, 3),
    keep=st.integers(1, 3),
)
@examples(4)
def test_every_operation_of_a_save_may_be_the_last(whole: list[int], damaged: list[int], files: int, keep: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        before, run = Path(name) / "before", Path(name) / "run"
        before.mkdir()
        for step in whole:
            publish(fill(before / "staged", step, files), before / f"checkpoint-{step}")
        for step in set(damaged) - set(whole):
            publish(fill(before / "staged", step, files), before / f"checkpoint-{step}")
            os.truncate(before / f"checkpoint-{step}" / "file-0", 1)
        earlier = f"checkpoint-{max(whole)}" if whole else None
        fill(before / ".saving", 9, files)

        def save() -> None:
            publish(run / ".saving", run / "checkpoint-9")
            remove_older(run, keep)

        operation, was_killed = 0, True
        while was_killed:
            operation += 1
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(before, run)
            was_killed = killed_at(operation, save, run)
            found = last_checkpoint(run)
            assert was_killed or found is not None
            if found is not None:
                assert found.name in (earlier, "checkpoint-9")
                step = int(found.name.rpartition("-")[2])
                expected = contents(fill(Path(name) / "expected", step, files))
                shutil.rmtree(Path(name) / "expected")
                assert contents(found, lambda path: path.name == "complete.json") == expected
            else:
                assert earlier is None
        assert operation > files, "the operations were seen"
        left = sorted(path.name for path in run.glob("checkpoint-*"))
        assert left == sorted([f"checkpoint-{step}" for step in sorted({*whole, 9}, reverse=True)[:keep]])


@contract(19)
@pytest.mark.slow
def test_twenty_kills_at_any_moment(tmp_path: Path) -> None:
    """Processes that save every other step, slowly, are killed after times drawn from a fixed seed."""
    steps, save_every, kills = 240, 2, 20
    page = write_page(tmp_path)
    more = ["--steps", steps, "--save-every", save_every, "--validate-every", 20]
    run, draw, in_a_save = tmp_path / "run", random.Random(19), 0
    killed, least = 0, 0
    while killed < kills and least < steps:
        child = os.fork()
        if not child:
            os.dup2(os.open(tmp_path / "child.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            write_slowly()
            main(train_arguments(page, run, *more, "--resume"))
        began = time.time()
        if draw.random() < 0.8:
            wait_for_a_step(run, least, began)
        time.sleep(draw.uniform(0.0, 3.0))
        os.kill(child, signal.SIGKILL)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (-signal.SIGKILL, 0), (tmp_path / "child.log").read_text()
        killed += ended != 0
        in_a_save += any(path.stat().st_mtime > began for path in (run / ".saving").glob("checkpoint-*/*"))
        found = last_checkpoint(run)
        reached = losses(run)[-1]["step"] if losses(run) else 0
        step = int(found.name.rpartition("-")[2]) if found else 0
        assert step >= max(least, reached - save_every), "no more is lost than the steps since the last checkpoint"
        least = step
    assert killed == kills
    assert in_a_save, "some kills came while files were written"
    with pytest.raises(SystemExit) as left:
        main(train_arguments(page, run, *more, "--resume"))
    assert left.value.code == 0
    with pytest.raises(SystemExit):
        main(train_arguments(page, tmp_path / "straight", *more))
    assert losses(run) == losses(tmp_path / "straight")
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "straight/model.safetensors").read_bytes()
    print(f"{killed} kills, {in_a_save} of them in a save, after which the run went on from step {least}")
