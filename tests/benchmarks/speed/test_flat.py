"""Decoding behind several contexts, in turns."""

import json

import pytest
import torch

from sheafstate.benchmarks.speed.flat import main


def test_every_context_is_timed_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert main(["--preset", "tiny", "--context", "16", "--context", "64", "--repeats", "3", "--threads", "1"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["context"], first["ratio"], second["context"]) == (16, 1.0, 64)
    assert first["ms"] > 0
    assert 0 < second["ratio"] < 10
    assert torch.get_num_threads() == threads


def test_an_unknown_preset_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--preset", "huge", "--context", "16"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
