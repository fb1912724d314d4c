"""``sheafstate simulate``: what it prints, what it writes, and what it says to bad input."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sheafstate import simulation
from sheafstate.cli import main
from sheafstate.simulation import PRESETS, SITES, Sweep, configure, run_as_dict, simulate

FIGURES = {"edges", "coverage", "waste", "edges_per_token"}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]):
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(["simulate", *arguments])
        captured = capsys.readouterr()
        return left.value.code, captured.out, captured.err

    return call


def test_json_is_one_object_of_the_published_form(command) -> None:
    status, out, err = command("--length", "2000", "--seed", "3", "--json")
    assert (status, err) == (0, "")
    run = json.loads(out)
    assert list(run) == ["length", "seed", "true_edges", "sites"]
    assert list(run["sites"]) == ["dense", "window", "sheaf"]
    for site in run["sites"].values():
        assert set(site) == FIGURES | {"by_type"}
        assert set(site["by_type"]) == {"local", "instruction", "topic", "recurrence"}
        assert all(set(row) == FIGURES | {"true_edges"} for row in site["by_type"].values())
        assert 0 <= site["coverage"] <= 1
        assert 0 <= site["waste"] < 1
        assert site["edges_per_token"] == site["edges"] / 2000
    assert run["sites"]["dense"]["edges"] == 1_999_000
    assert run == run_as_dict(simulate(2000, 3))


def test_default_length_and_seed(command) -> None:
    run = json.loads(command("--json")[1])
    assert (run["length"], run["seed"]) == (32_768, 0)


def test_json_of_several_runs_is_one_record(command) -> None:
    _, out, _ = command("--length", "64", "--length", "32", "--seed", "1", "--seed", "2", "--json")
    record = json.loads(out)
    assert [(run["length"], run["seed"]) for run in record["runs"]] == [(64, 1), (64, 2), (32, 1), (32, 2)]
    assert record["sweeps"] == {}


def test_presets_and_single_values(command) -> None:
    arguments = ("--length", "3000", "--preset", "starved", "--set", "recent_mentions=3", "--set", "mentions = 0.1")
    expected = simulate(3000, 0, configure("starved", {"recent_mentions": 3, "mentions": 0.1}))
    assert json.loads(command(*arguments, "--json")[1]) == run_as_dict(expected)


def test_the_table_shows_the_figures(command) -> None:
    status, out, _ = command("--length", "32768")
    assert status == 0
    text = re.sub(r" +", " ", out)
    assert "32,768 positions" in text
    assert "dense 536,854,528 100.000 99.987 16,383.500" in text
    assert re.search(r"window 262,108 96\.\d+ 74\.99\d 7\.999", text)
    assert re.search(r"sheaf 100,\d+ 100\.000 32\.5\d+ 3\.07", text)
    assert re.search(r"recurrence \d+ 100\.000 0\.\d+ 100\.000 \d+ 0\.000", text)


def test_nothing_to_divide_by_is_a_dash_and_null(command) -> None:
    run = json.loads(command("--length", "2", "--set", "local_links=0", "--json")[1])
    assert run["true_edges"] == 0
    assert run["sites"]["sheaf"]["coverage"] is None
    assert run["sites"]["sheaf"]["waste"] == 1
    assert re.search(r"sheaf +1 +– +100\.000", command("--length", "2", "--set", "local_links=0")[1])


@pytest.mark.parametrize("preset", PRESETS)
def test_every_sweep_with_every_preset(command, preset: str, tmp_path: Path) -> None:
    lengths = ("--length", "300", "--length", "900")
    status, out, err = command(*lengths, "--preset", preset, "--sweep", "all", "--out", str(tmp_path))
    assert (status, err) == (0, "")
    for title in ("Scaling", "Spread over 20 seeds", "Sheaf site by rates", "Sheaf site by budget"):
        assert title in out
    names = {path.name for path in tmp_path.iterdir()}
    tables = {"runs.csv", *(f"{sweep}.csv" for sweep in Sweep)}
    assert names == {"simulation.json", "sites.png", *tables, *(f"{sweep}.png" for sweep in Sweep)}
    assert sorted(re.findall(r"wrote .*/(.+)", out)) == sorted(names)
    assert max(len(line.rstrip()) for line in out.splitlines() if "wrote" not in line) <= 80


def test_the_table_of_a_sweep_names_the_relation_that_is_covered_least(command) -> None:
    _, out, _ = command("--preset", "starved", "--sweep", "budget", "--length", "4096")
    by_type = simulate(4096, 0, configure("starved", {"recent_anchors": 0})).sites["sheaf"].by_type
    table = out.split("recent_anchors", 1)[1]
    assert re.search(rf"\n +0 .* topic {100 * by_type['topic'].coverage:.3f} ", table)
    _, out, _ = command("--sweep", "budget", "--length", "4096")
    assert re.search(r"\n +4 +100\.000 +\S+ +\S+ *\n", out)


def test_a_window_without_edges_can_be_swept(command, tmp_path: Path) -> None:
    arguments = ("--length", "50", "--length", "100", "--set", "baseline_window=0", "--sweep", "scaling")
    status, out, _ = command(*arguments, "--out", str(tmp_path))
    assert status == 0
    assert re.search(r"exponent +\S+ +2\.0\d+ +– +1\.", out)


def test_the_help_has_an_example_and_the_names(command) -> None:
    status, out, _ = command("--help")
    assert status == 0
    assert "Example: sheafstate simulate" in out
    assert all(name in out for name in (*PRESETS, *Sweep))
    assert "32768" in out


BAD = {
    "zero": ("--length 0", "length must be an integer from 2 to 67108864, got 0"),
    "negative": ("--length -5", "got -5"),
    "one": ("--length 1", "got 1"),
    "huge": ("--length 10000000000", "got 10000000000"),
    "a bad one among good ones": ("--length 10 --length 0", "got 0"),
    "seed": ("--seed -3", "seed must be an integer of 0 or more, got -3"),
    "preset": ("--preset vast", "no simulation preset 'vast'; choose from default, deep, starved, noisy"),
    "sweep": ("--sweep everything", "no sweep 'everything'; choose from scaling, seeds, rates, budget or all"),
    "no pair": ("--set mentions", "--set takes KEY=VALUE, got 'mentions'"),
    "no such rate": ("--set mention=0.1", "no simulation parameter 'mention'"),
    "rate out of range": ("--set mentions=7", "mentions must be a share from 0 to 1, got 7.0"),
    "rates too many": ("--set mentions=0.99", "sum of the rates of the roles must be at most 1"),
    "no number": ("--length many", "--length"),
    "no such option": ("--size 5", "--size"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_sentence(command, arguments: str, message: str) -> None:
    status, out, err = command(*arguments.split())
    assert status != 0
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(
    command, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "experiment", lambda *_: pytest.fail("worked in vain"))
    (tmp_path / "file").write_text("mine")
    status, out, err = command("--out", str(tmp_path / place))
    assert status == 1
    assert out == ""
    assert err.startswith("error: ")
    assert str(tmp_path / "file") in err
    assert (tmp_path / "file").read_text() == "mine"


def test_python_dash_m() -> None:
    arguments = [sys.executable, "-m", "sheafstate", "simulate", "--length", "100", "--json"]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert set(json.loads(answer.stdout)["sites"]) == set(SITES)
    assert answer.stderr == ""
