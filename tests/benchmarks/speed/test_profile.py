"""Where the time goes, in shares of the whole."""

import pytest

from sheafstate.benchmarks.speed import profile


@pytest.mark.parametrize("work", ["prefill", "decode"])
def test_shares_are_of_the_whole(work: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--work", work, "--context", "32", "--preset", "tiny", "--calls", "1", "--threads", "1"]
    assert profile.main(arguments) == 0
    parts, operations = capsys.readouterr().out.strip().split("\n\n")
    shares = {line.split("|")[1].strip(): float(line.split("|")[2]) for line in parts.splitlines()[2:]}
    assert {"input projection", "dynamics", "local", "retrieval", "gluing", "rest"} <= shares.keys()
    assert sum(shares.values()) == pytest.approx(100, abs=1)
    assert all(share > 0 for share in shares.values())
    assert "aten::mm" in operations


def test_an_unknown_preset_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert profile.main(["--preset", "huge"]) == 1
    assert "huge" in capsys.readouterr().err
