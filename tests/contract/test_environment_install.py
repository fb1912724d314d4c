"""The built wheel in an environment of its own: no source tree, no compiler, no accelerator, no network."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .mutants import ROOT
from .promises import Mutation, contract

HERE = Path(__file__).parent
CALLS = "calls.txt"
LIMIT = 900

COMPILED = Mutation("ops/scan.py", "def selective_scan(", "@torch.compile\ndef selective_scan(", "needs a compiler")
ASKS_THE_HUB = Mutation(
    "cli/report.py",
    '    """Make report.html',
    '    __import__("socket").getaddrinfo("localhost", 443)\n    """Make report.html',
    "looks for the network",
)


def outside(**more: str) -> dict[str, str]:
    """The environment variables, without those that lead Python to the source tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))} | more


def pip(python: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *words]
    return subprocess.run(command, env=outside(), capture_output=True, text=True, timeout=LIMIT, check=False)


def new_environment(folder: Path) -> Path:
    """The Python of an environment that holds nothing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], env=outside(), check=True, timeout=LIMIT)
    return folder / "bin" / "python"


def packages_of(python: Path) -> Path:
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    return packages


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, env=outside(), check=True, timeout=LIMIT)
    return next(folder.glob("*.whl"))


def without_network() -> list[str]:
    """The words before a command that take its network away, where the system lets us."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode:
        return []
    return [unshare, "-rn"]


def live(python: Path, home: Path) -> None:
    """Do what a stranger does, and see that nothing was asked for that a clean environment lacks."""
    home.mkdir()
    shutil.copy(HERE / "closed_environment.py", packages_of(python) / "sitecustomize.py")
    shutil.copy(HERE / "stranger.py", home.parent)
    closed = {
        "PATH": str(python.parent),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "CC": "false",
        "CXX": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "CLOSED_ENVIRONMENT_CALLS": str(home / CALLS),
    }
    command = [*without_network(), str(python), "-I", str(home.parent / "stranger.py")]
    done = subprocess.run(command, cwd=home, env=closed, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert not (home / CALLS).exists(), (home / CALLS).read_text(encoding="utf-8")
    shown = subprocess.run(
        [python.parent / "sheafstate", "--version"], cwd=home, env=closed, capture_output=True, text=True, check=True
    )
    assert "0." in shown.stdout


@pytest.mark.slow
@contract(24, 25, breaks=(COMPILED, ASKS_THE_HUB))
def test_the_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    """The packages that it depends on are those that the tests run with."""
    python = new_environment(tmp_path / "environment")
    installed = pip(python, "install", "--no-deps", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    (packages_of(python) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    live(python, tmp_path / "home")


@pytest.mark.slow
@contract(24, 25)
def test_a_clean_environment_is_enough(wheel: Path, tmp_path: Path) -> None:
    """Everything that the wheel asks for, and nothing else, is installed from the registry."""
    python = new_environment(tmp_path / "environment")
    if pip(python, "download", "--no-deps", "--dest", tmp_path / "downloaded", "accelerate").returncode:
        pytest.skip("no registry is within reach")
    installed = pip(python, "install", "--constraint", ROOT / "constraints.txt", wheel)
    assert installed.returncode == 0, installed.stderr
    live(python, tmp_path / "home")
