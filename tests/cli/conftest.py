"""What the tests of several commands share."""

from pathlib import Path

import pytest

from sheafstate.cli import main
from tests.checkpoints import save_small_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of bytes with random weights, and its tokenizer."""
    return save_small_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]):
    """Runs a command that must fail; returns its one sentence."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert left.value.code not in (0, None)
        assert shown.out == ""
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1
        return shown.err

    return run


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]):
    """Runs a command that must succeed; returns what it printed."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert left.value.code == 0, shown.err
        return shown.out

    return run
