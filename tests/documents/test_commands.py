"""The commands in the documents and in the helps exist, take the options that are shown, and run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer

from sheafstate.cli import COMMANDS, app, main
from sheafstate.data import read_documents
from tests.checkpoints import save_small_checkpoint, save_small_llama

from .markdown import DOCUMENTS, ROOT

HELP_EXAMPLE = re.compile(r"Example: (sheafstate .+?)\s*(?=Example:|\Z)", re.DOTALL)


def in_helps() -> list[list[str]]:
    """The examples of every command's help, as a document would write them."""
    found = {name: HELP_EXAMPLE.findall(command.__doc__ or "") for name, command in COMMANDS.items()}
    assert all(found.values()), found
    return [shlex.split(line) for lines in found.values() for line in lines]


def in_documents() -> list[list[str]]:
    return [words for document in DOCUMENTS for words in document.commands("sheafstate")]


SHOWN = sorted({tuple(words[1:]) for words in (*in_documents(), *in_helps())})
commands = pytest.mark.parametrize("words", SHOWN, ids=" ".join)


def test_every_command_is_shown() -> None:
    assert {words[0] for words in SHOWN} == set(COMMANDS)


@commands
def test_the_command_line_is_understood(words: tuple[str, ...]) -> None:
    command = typer.main.get_command(app).commands[words[0]]
    command.make_context(words[0], list(words[1:]))


def test_make_knows_its_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    asked = {words[-1] for document in DOCUMENTS for words in document.commands("make")}
    assert {"run", "test", "check"} <= asked <= targets


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the texts and the runs that the documents speak of, all of them small."""
    folder = tmp_path_factory.mktemp("workplace")
    text = read_documents("tinyshakespeare")[0][:6000]
    for name in ("my-text.txt", "other-text.txt"):
        (folder / name).write_text(text, encoding="utf-8")
    for run in ("demo", "mine", "demo-int8"):
        save_small_checkpoint(folder / "runs" / run)
        (folder / "runs" / run / "metrics.json").write_text('{"parameters": 1}')
        line = '{"step": 1, "tokens": 9, "loss": 2.0, "learning_rate": 0.1}\n'
        (folder / "runs" / run / "history.jsonl").write_text(line)
    save_small_llama(folder / "my-llama")
    (folder / "experiments").mkdir()
    shutil.copy(ROOT / "experiments" / "compare.yaml", folder / "experiments")
    return folder


CHEAP = {
    "train": {"--steps": "2", "--data": "my-text.txt", "--preset": "tiny", "--tokenizer": "byte"},
    "evaluate": {"--data": "other-text.txt"},
    "export": {"--data": "other-text.txt"},
    "simulate": {"--length": "2048", "--sweep": "scaling"},
    "bench": {"--context": "64", "--work": "prefill"},
}
"""Command → options whose values are replaced, to try what is shown at little cost."""

ADDED = {
    "simulate": ["--length", "1024", "--length", "2048"],
    "generate": ["--max-new-tokens", "8"],
    "bench": ["--preset", "tiny", "--work", "prefill", "--context", "64", "--repeats", "1"],
    "compare": ["--dry"],
}
"""Command → what is added to the same end; a scaling sweep goes over the lengths that are given."""

NOT_HERE = {
    "demo": "tests/cli/test_demo.py runs it",
    "--resume": "tests/training/test_resume.py resumes",
    "--compile": "tests/contract/test_compiled.py compiles, without the checks of shapes that are on here",
    "--task": "tests/cli/test_evaluate_task.py asks",
}


def cheaper(words: tuple[str, ...]) -> list[str]:
    """The same command on little text, with few steps, on a small model."""
    line, values = list(words), CHEAP.get(words[0], {})
    for at, word in enumerate(words[:-1]):
        if word in values:
            line[at + 1] = values[word]
    return line + ADDED.get(words[0], [])


@commands
def test_the_command_runs(
    words: tuple[str, ...], workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skipped = NOT_HERE.keys() & set(words)
    if skipped:
        pytest.skip(NOT_HERE[skipped.pop()])
    monkeypatch.chdir(workplace)
    line = cheaper(words)
    if "--out" in line:
        line[line.index("--out") + 1] = str(tmp_path / "out")
    if line[0] == "export":
        line[2] = str(tmp_path / "out")
    with pytest.raises(SystemExit) as left:
        main(line)
    assert left.value.code == 0
