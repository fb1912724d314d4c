"""The Python in the documents runs, and so do the examples."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints import save_small_checkpoint

from .markdown import DOCUMENTS, ROOT, Document

WITH_PYTHON = [document for document in DOCUMENTS if document.code("python")]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``runs/demo`` is a small checkpoint with a figure."""
    folder = tmp_path_factory.mktemp("workplace")
    save_small_checkpoint(folder / "runs" / "demo")
    (folder / "runs" / "demo" / "metrics.json").write_text('{"parameters": 1}')
    return folder


@pytest.fixture
def run(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a program in the workplace; returns what it printed."""

    def program(path: Path, *arguments: str) -> str:
        monkeypatch.chdir(workplace)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    return program


@pytest.mark.parametrize("document", WITH_PYTHON, ids=repr)
def test_the_blocks_of_a_document_run_one_after_another(document: Document, run, tmp_path: Path) -> None:
    program = tmp_path / "blocks.py"
    program.write_text("\n".join(document.code("python")), encoding="utf-8")
    run(program)


ARGUMENTS = {
    "branch_a_state.py": ["runs/demo"],
    "fine_tune_with_peft.py": ["runs/demo", "adapter"],
    "generate_with_pipeline.py": ["runs/demo"],
    "pack_low_bit.py": ["runs/demo", "int4"],
    "quantize_with_torchao.py": ["runs/demo", "int8"],
    "read_the_site.py": ["runs/demo", "to be or not to be"],
    "train_with_trainer.py": ["out", "4"],
}

OWN_PROCESS = {"compile_the_model.py", "read_in_parallel.py", "train_with_fsdp.py"}
"""Examples that are started in processes of their own: below, and in tests/contract/test_libraries_processes.py."""


def test_every_example_is_tried() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == ARGUMENTS.keys() | OWN_PROCESS


def test_the_model_compiles() -> None:
    """In a process of its own: a compiler cannot trace the shape checks of the tests."""
    command = [sys.executable, "examples/compile_the_model.py", "aot_eager", "32"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "best of five" in done.stdout


def test_a_text_is_read_by_two_processes(workplace: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, str(ROOT / "examples" / "read_in_parallel.py"), "runs/demo"]
    done = subprocess.run(command, check=False, cwd=workplace, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "rank 0 read 8,192 of 16,384 tokens" in done.stdout
    assert "it goes on from" in done.stdout


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning:transformers")  # by PEFT
def test_the_example_runs(name: str, run) -> None:
    if "torchao" in name:
        pytest.importorskip("torchao")
    assert run(ROOT / "examples" / name, *ARGUMENTS[name])
