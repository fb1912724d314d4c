"""The frame of the command line: help, version, and errors as one sentence."""

import errno
import os
import subprocess
import sys

import pytest
import typer

from sheafstate import __version__, cli
from sheafstate.cli import COMMANDS, TRACEBACK_VARIABLE, describe, main
from sheafstate.errors import InputError


def leave(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """A command line whose only command raises what it is given."""

    def make(error: BaseException) -> None:
        app = typer.Typer()

        @app.callback()
        def root() -> None:
            pass

        @app.command()
        def fail() -> None:
            raise error

        monkeypatch.setattr(cli, "app", app)

    monkeypatch.delenv(TRACEBACK_VARIABLE, raising=False)
    return make


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(["--version"]) == 0
    assert capsys.readouterr().out == f"sheafstate {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(arguments) == 0
    shown = capsys.readouterr()
    assert all(name in shown.out for name in COMMANDS)
    assert shown.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave([name, "--help"]) == 0
    assert f"sheafstate {name}" in capsys.readouterr().out.split("Example", 1)[1]


@pytest.mark.parametrize("arguments", [["nothing"], ["--nothing"], ["simulate", "--nothing"], ["simulate", "extra"]])
def test_a_line_that_cannot_be_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert leave(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert len(shown.err.splitlines()) == 1


ERRORS = {
    "input": (InputError("the length must be\n  2 or more"), "the length must be 2 or more"),
    "value": (ValueError("bad shape"), "bad shape"),
    "file": (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.txt"), "a.txt: No such file or directory"),
    "disk": (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    "memory": (MemoryError(), "not enough memory"),
    "bug": (KeyError("x"), "unexpected KeyError: 'x' (set SHEAFSTATE_TRACEBACK=1 to see where)"),
}


@pytest.mark.parametrize(("error", "sentence"), ERRORS.values(), ids=ERRORS)
def test_errors_are_one_sentence(failing, error: Exception, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    failing(error)
    assert leave(["fail"]) == 1
    assert capsys.readouterr().err == f"error: {sentence}\n"
    assert describe(error) == (sentence, 1)


def test_the_traceback_can_be_asked_for(failing, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(InputError("bad"))
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    with pytest.raises(InputError, match="bad"):
        main(["fail"])


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), typer.Abort(), typer.Exit(130)], ids=["Ctrl-C", "abort", "exit"]
)
def test_an_interrupted_command_says_nothing(failing, error, capsys: pytest.CaptureFixture[str]) -> None:
    failing(error)
    assert leave(["fail"]) == 130
    assert "error" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    program = "from sheafstate.cli import main; main(['simulate', '--length', '64', '--sweep', 'rates', '--json'])"
    reader, writer = os.pipe()
    os.close(reader)
    answer = subprocess.run(
        [sys.executable, "-c", program], check=False, stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert answer.returncode == 1
    assert "Traceback" not in answer.stderr
    assert "Exception ignored" not in answer.stderr
