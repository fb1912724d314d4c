"""A disk that is full or may not be written, and a real Ctrl-C: a sentence, and all that was saved stays."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sheafstate.training import last_checkpoint
from tests.checkpoints import save_small_checkpoint

from .promises import contract
from .small_runs import command, contents, losses, train_arguments, write_page
from .test_bad_input import is_told

SIZE = 16 << 20


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def visible(folder: Path) -> dict[str, bytes]:
    """Files that are there for others: what is being written has a hidden name."""
    return contents(folder, lambda path: any(part.startswith(".") for part in path.relative_to(folder).parts))


@contract(26)
@pytest.mark.parametrize("size", [0, 200, 3000])
def test_a_full_disk_leaves_earlier_results(size: int, tmp_path: Path) -> None:
    checkpoint = save_small_checkpoint(tmp_path / "checkpoint")
    out = tmp_path / "out"
    orders = (
        ("simulate", "-n", 64, "--out", out),
        ("inspect", checkpoint, "To be", "--out", out),
        ("report", out, "--images", out),
    )
    for order in orders:
        assert command(*order)[0] == 0
    before = visible(out)
    for order in orders:
        with no_file_longer_than(size):
            is_told(*command(*order))
        assert visible(out) == before


@contract(26)
@pytest.mark.parametrize("size", [100, 5_000, 30_000])
def test_a_full_disk_stops_a_run_that_goes_on_later(size: int, tmp_path: Path) -> None:
    page, run = write_page(tmp_path), tmp_path / "run"
    order = train_arguments(page, run, "--save-every", 4, "--schedule", "constant")
    assert command(*order, "--steps", 4)[0] == 0
    before = visible(run)
    with no_file_longer_than(size):
        is_told(*command(*order, "--steps", 8, "--resume"))
    now = visible(run)
    for name, raw in before.items():
        if name not in ("options.json", "history.jsonl") and not name.startswith("logs/"):
            assert now[name] == raw, name
    assert [line["step"] for line in losses(run) if "loss" in line][:4] == [1, 2, 3, 4]
    assert last_checkpoint(run) == run / "checkpoint-4"
    assert command(*order, "--steps", 8, "--resume")[0] == 0
    assert [line["step"] for line in losses(run) if "loss" in line] == list(range(1, 9))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own; skipped where one may not be mounted."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=False)
    if made.returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contract(26)
@pytest.mark.slow
def test_a_disk_that_is_really_full_or_read_only(tmp_path: Path) -> None:
    page = write_page(tmp_path)
    with small_disk(tmp_path / "disk") as disk:
        run = disk / "run"
        order = train_arguments(page, run, "--save-every", 4, "--schedule", "constant")
        assert command(*order, "--steps", 4)[0] == 0
        checkpoint = contents(run / "checkpoint-4")
        for left in (0, 1, 8, 30, 60):
            (disk / "ballast").unlink(missing_ok=True)
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            (disk / "ballast").write_bytes(b"\0" * (free - (left << 10)))
            is_told(*command(*order, "--steps", 8, "--resume"))
            assert contents(run / "checkpoint-4") == checkpoint
            assert last_checkpoint(run) == run / "checkpoint-4"
        (disk / "ballast").unlink()
        assert command(*order, "--steps", 8, "--resume")[0] == 0
        before = contents(disk)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        is_told(*command(*order, "--steps", 12, "--resume"))
        is_told(*command(*order, "--steps", 12, "--overwrite"))
        is_told(*command("report", run))
        is_told(*command("simulate", "-n", 64, "--out", disk / "simulation"))
        assert command("generate", run, "a", "--max-new-tokens", 2)[0] == 0
        assert command("evaluate", run, "--data", page)[0] == 0
        assert contents(disk) == before


@contract(26)
@pytest.mark.slow
def test_a_real_ctrl_c(tmp_path: Path) -> None:
    """Sent to a process of its own, while it trains and while it saves."""
    page, run, draw = write_page(tmp_path), tmp_path / "run", random.Random(26)
    order = train_arguments(page, run, "--save-every", 2, "--steps", 400, "--resume")
    for _ in range(3):
        last = len(losses(run))
        program = [sys.executable, "-m", "sheafstate", *order]
        with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
            end = time.monotonic() + 300
            while len(losses(run)) <= last and time.monotonic() < end and process.poll() is None:
                time.sleep(0.05)
            time.sleep(draw.uniform(0, 0.5))
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            said = process.stderr.read() if process.stderr else ""
        assert "Traceback" not in said
        assert "--resume" in said
    assert last_checkpoint(run) is not None
