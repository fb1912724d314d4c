"""The record of an experiment, the files it becomes, and the figures drawn from them."""

import csv
import json
from pathlib import Path

import matplotlib.image
import pytest

from sheafstate import __version__
from sheafstate.errors import InputError
from sheafstate.report import simulation_plots
from sheafstate.report.simulation_plots import draw_simulation, sites_figure
from sheafstate.simulation import (
    RECORD_NAME,
    SITES,
    SimulationConfig,
    Sweep,
    configure,
    experiment,
    run_as_dict,
    simulate,
    write_results,
)

LENGTHS = [256, 1024]


@pytest.fixture(scope="module")
def record() -> dict:
    return experiment(SimulationConfig(), LENGTHS, [0, 1], list(Sweep), "default")


def without_time(record: dict) -> dict:
    return json.loads(json.dumps(record), object_hook=lambda o: {k: v for k, v in o.items() if k != "seconds"})


def test_an_experiment_runs_every_length_with_every_seed(record: dict) -> None:
    made = [(run["length"], run["seed"]) for run in record["runs"]]
    assert made == [(256, 0), (256, 1), (1024, 0), (1024, 1)]
    assert record["runs"][2] == run_as_dict(simulate(1024, 0))
    assert (record["kind"], record["version"], record["preset"]) == ("simulation", __version__, "default")
    assert record["config"]["rates"]["local_span"] == 3
    assert record["config"]["budget"]["recent_mentions"] == 1
    assert set(record["sweeps"]) == {"scaling", "seeds", "rates", "budget"}
    assert record["sweeps"]["scaling"]["fits"]["dense"]["exponent"] == pytest.approx(2, abs=0.01)
    assert record["sweeps"]["seeds"]["spread"]["sheaf"]["coverage"]["mean"] == 1
    assert {point["run"]["length"] for point in record["sweeps"]["rates"]["points"]} == {256}


def test_an_experiment_can_be_repeated(record: dict) -> None:
    again = experiment(SimulationConfig(), LENGTHS, [0, 1], list(Sweep), "default")
    assert without_time(again) == without_time(record)


def test_progress_sees_every_case() -> None:
    seen: dict[str, int] = {}

    def track(cases, name):
        for case in cases:
            seen[name] = seen.get(name, 0) + 1
            yield case

    experiment(SimulationConfig(), [64, 128], [0], [Sweep.SCALING, Sweep.SCALING], track=track)
    assert seen == {"runs": 2, "scaling": 2}


def test_the_files_say_what_the_record_says(record: dict, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    written = write_results(record, out)
    assert sorted(out.iterdir()) == sorted(written)
    assert [path.name for path in written] == [
        RECORD_NAME,
        *(f"{name}.csv" for name in ("runs", "scaling", "seeds", "rates", "budget")),
    ]
    assert json.loads((out / RECORD_NAME).read_text()) == json.loads(json.dumps(record))

    points = {"runs": [{"run": run} for run in record["runs"]]}
    points |= {name: sweep["points"] for name, sweep in record["sweeps"].items()}
    for name, made in points.items():
        with (out / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == len(made) * len(SITES) * 5
        sheaf = [row for row in rows if (row["site"], row["type"]) == ("sheaf", "all")]
        assert [int(row["edges"]) for row in sheaf] == [p["run"]["sites"]["sheaf"]["edges"] for p in made]
        assert [row["waste"] for row in sheaf] == [
            "" if (waste := p["run"]["sites"]["sheaf"]["waste"]) is None else str(waste) for p in made
        ]
        topic = [row for row in rows if (row["site"], row["type"]) == ("window", "topic")]
        expected = [p["run"]["sites"]["window"]["by_type"]["topic"] for p in made]
        assert [row["coverage"] for row in topic] == ["" if (c := t["coverage"]) is None else str(c) for t in expected]
        assert [row["value"] for row in sheaf] == [str(p.get("value", "")) for p in made]


def test_a_failed_write_leaves_what_was_there(record: dict, tmp_path: Path) -> None:
    write_results(record, tmp_path)
    before = (tmp_path / RECORD_NAME).read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results({**record, "commit": float("nan")}, tmp_path)
    assert (tmp_path / RECORD_NAME).read_bytes() == before


def test_figures_come_from_the_file_alone(record: dict, tmp_path: Path) -> None:
    (tmp_path / simulation_plots.RECORD_NAME).write_text(json.dumps(record))
    drawn = draw_simulation(tmp_path)
    assert [path.name for path in drawn] == ["sites.png", "scaling.png", "seeds.png", "rates.png", "budget.png"]
    for path in drawn:
        height, width, _ = matplotlib.image.imread(path).shape
        assert width >= 800
        assert height >= 350
    assert simulation_plots.RECORD_NAME == RECORD_NAME


def test_only_what_was_swept_is_drawn(tmp_path: Path) -> None:
    write_results(experiment(configure("noisy"), [2], [0], [Sweep.BUDGET]), tmp_path)
    assert [path.name for path in draw_simulation(tmp_path)] == ["sites.png", "budget.png"]


def test_bars_are_as_high_as_the_figures(record: dict) -> None:
    coverage, waste, per_token, by_relation = sites_figure(record).get_axes()
    sites = record["runs"][0]["sites"]
    for axes, key in ((coverage, "coverage"), (waste, "waste"), (per_token, "edges_per_token")):
        assert [bar.get_height() for bar in axes.patches] == [sites[name][key] for name in SITES]
    heights = [bar.get_height() for bar in by_relation.patches]
    assert heights == [row["coverage"] or 0 for name in SITES for row in sites[name]["by_type"].values()]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"kind": "training"}', "\x00"])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text(text)
    with pytest.raises(InputError, match=r"simulation\.json is not a record of the simulation"):
        draw_simulation(tmp_path)
