"""Applies every named mutation to a copy of the package and sees the tests that name it fail.

``python -m tests.contract.mutants [part of a test's name ...]``; the exit status is 1 if a mutation survives.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .collection import Holder, holders
from .promises import Mutation

ROOT = Path(__file__).parents[2]
COPIED = (
    *("src", "tests", "examples", "docs", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"),
    *("Makefile", "pyproject.toml", "constraints.txt", "constraints-lowest.txt"),
)
PASSED, FAILED = 0, 1
LIMIT = 1200


def pairs(words: list[str]) -> list[tuple[Holder, Mutation]]:
    """Tests and mutations to try; with words, only tests whose path or name holds one of them."""
    return [
        (holder, mutation)
        for holder in holders()
        if not words or any(word in f"{holder.path}::{holder.name}" for word in words)
        for mutation in holder.breaks
    ]


def copy_project(folder: Path) -> None:
    """What a test run needs, without what it leaves."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, folder / name)


def run(folder: Path, holder: Holder) -> subprocess.CompletedProcess[str]:
    """One test over the copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["HYPOTHESIS_PROFILE"] = "mutants"
    markers = ["-m", "slow or not slow"] if holder.slow else []
    test = f"{holder.path}::{holder.name}"
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *markers, test]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
    )


def is_caught(folder: Path, holder: Holder, mutation: Mutation) -> bool:
    """Whether the test fails with the mutation applied; the copy is whole again afterwards."""
    file = folder / "src" / "sheafstate" / mutation.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.file} holds {whole.count(mutation.old)} times: {mutation.old!r}")
    file.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = run(folder, holder)
    finally:
        file.write_text(whole, encoding="utf-8")
    if done.returncode not in (PASSED, FAILED):
        raise SystemExit(f"{holder.path}::{holder.name} could not be run:\n{done.stdout}\n{done.stderr}")
    return done.returncode == FAILED


def main() -> int:
    """Try all pairs and print a line for each."""
    survivors = 0
    with tempfile.TemporaryDirectory() as name:
        copy_project(Path(name))
        for holder, mutation in pairs(sys.argv[1:]):
            started = time.monotonic()
            caught = is_caught(Path(name), holder, mutation)
            survivors += not caught
            seconds = time.monotonic() - started
            verdict = "caught  " if caught else "SURVIVED"
            print(f"{verdict} {seconds:5.0f} s  {holder.name}: {mutation.fault}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
