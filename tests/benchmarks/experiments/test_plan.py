"""What a plan says is what is run, once each, and in its order."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sheafstate.benchmarks.experiments.plan import Published, read_plan
from sheafstate.benchmarks.experiments.pool import missing
from sheafstate.benchmarks.experiments.rates import search_rate
from sheafstate.benchmarks.experiments.tables import tables
from sheafstate.errors import InputError

ROOT = Path(__file__).parents[3]

CONTENT: dict[str, Any] = {
    "name": "small",
    "learning_rates": [0.001, 0.002],
    "tasks": {
        "short": {
            "kind": "recall",
            "context": 32,
            "rows": 2,
            "steps": 4,
            "tune_steps": 2,
            "model": {"preset": "tiny", "heads": {"local": 2, "memory": 1}},
        },
        "long": {"like": "short", "context": 64, "model": {"d_model": 64}},
    },
    "questions": {"memory": {"none": {"heads": {"memory": 0}}}, "window": {"8": {"window": 8}}},
    "studies": [
        {"name": "first", "task": "short", "sides": ["base", "*/*"], "seeds": [0]},
        {"name": "second", "task": "short", "sides": ["base"], "seeds": [0, 1]},
    ],
}


def plan_of(tmp_path: Path, **changes: Any) -> Any:
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes), encoding="utf-8")
    return read_plan(path)


def record_of(run: Any, loss: float | None) -> dict[str, Any]:
    return {"key": run.key, "learning_rate": run.learning_rate, "figures": {} if loss is None else {"loss": loss}}


def test_a_task_takes_from_another_what_it_does_not_say(tmp_path: Path) -> None:
    task = plan_of(tmp_path).tasks["long"]
    assert task["context"] == 64
    assert task["rows"] == 2
    assert task["model"] == {"preset": "tiny", "heads": {"local": 2, "memory": 1}, "d_model": 64}


def test_a_side_changes_what_it_names_alone(tmp_path: Path) -> None:
    run = plan_of(tmp_path).full("short", "memory/none", 0.001, 0)
    assert run.model["heads"] == {"local": 2, "memory": 0}


def test_short_runs_come_first_and_choose_the_rate(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    records: dict[str, Any] = {}
    jobs = list(missing(plan, records))
    assert [job.phase for job in jobs] == ["tune"] * 6
    for run, loss in zip(plan.tuning("short", "base"), (3.0, 2.0), strict=True):
        records[run.key] = record_of(run, loss)
    job = next(job for job in missing(plan, records) if job.phase == "full")
    assert (job.run.side, job.run.learning_rate, job.run.seed) == ("base", 0.002, 0)


def test_a_rate_at_which_the_loss_is_lost_is_not_chosen(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    runs = plan.tuning("short", "base")
    records = {run.key: record_of(run, loss) for run, loss in zip(runs, (3.0, None), strict=True)}
    assert next(job for job in missing(plan, records) if job.phase == "full").run.learning_rate == 0.001


def test_a_lower_rate_is_tried_only_while_the_lowest_is_the_best(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, learning_rates=[0.001, 0.002, 0.004])
    low, middle, high = plan.tuning("short", "base")

    def search(**losses: float) -> tuple[list[Any], float | None]:
        runs = {"low": low, "middle": middle, "high": high}
        return search_rate([low, middle, high], {runs[n].key: record_of(runs[n], loss) for n, loss in losses.items()})

    assert search() == ([high, middle], None)
    assert search(high=1.0, middle=2.0) == ([], 0.004)
    assert search(high=2.0, middle=1.0) == ([low], None)
    assert search(high=2.0, middle=1.0, low=1.5) == ([], 0.002)
    assert search(high=2.0, middle=1.0, low=0.5) == ([], 0.001)
    assert search_rate([low], {}) == ([], 0.001)


def test_a_grid_extended_upwards_asks_nothing_more_of_a_side_whose_minimum_is_known(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, learning_rates=[0.001, 0.002, 0.004, 0.008])
    runs = plan.tuning("short", "base")
    known = {run.key: record_of(run, loss) for run, loss in zip(runs[:3], (2.0, 1.0, 1.5), strict=True)}
    assert search_rate(runs, known) == ([], 0.002)
    edge = {run.key: record_of(run, loss) for run, loss in zip(runs[:3], (2.0, 1.0, 0.5), strict=True)}
    assert search_rate(runs, edge) == ([runs[3]], None)
    assert search_rate(runs, edge | {runs[3].key: record_of(runs[3], 0.75)}) == ([], 0.004)
    assert search_rate(runs, edge | {runs[3].key: record_of(runs[3], None)}) == ([], 0.004)


def test_nothing_is_missing_once_every_run_has_its_record(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    records: dict[str, Any] = {}
    made = 0
    while jobs := list(missing(plan, records)):
        records |= {job.run.key: record_of(job.run, 1.0) for job in jobs}
        made += len(jobs)
    assert made == 3 * 2 + 3 + 1  # rates of three sides, one seed of each, a second one of the base


def test_a_run_that_two_studies_name_is_made_once(tmp_path: Path) -> None:
    work = list(plan_of(tmp_path).work())
    assert len(work) == len(set(work)) == 4


def test_the_key_follows_from_the_work_and_not_from_its_name(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path, questions={"a": {"same": {"window": 8}, "other": {"window": 9}}, "b": {"one": {"window": 8}}}
    )
    same, twin, other = (plan.full("short", side, 0.001, 0).key for side in ("a/same", "b/one", "a/other"))
    assert same == twin != other
    assert plan.full("short", "a/same", 0.002, 0).key != same
    assert plan.full("short", "a/same", 0.001, 1).key != same
    assert plan.full("long", "a/same", 0.001, 0).key != same


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"studies": [{"name": "x", "task": "none", "sides": ["base"], "seeds": [0]}]}, "names the task 'none'"),
        ({"studies": [{"name": "x", "task": "short", "sides": ["windw/*"], "seeds": [0]}]}, "no side is called so"),
        ({"studies": [{"name": "x", "task": "short", "sides": ["base"]}]}, "a study has the fields"),
        ({"tasks": {"short": {"kind": "recall"}}}, "task short lacks model"),
        ({"questions": {"memory": 3}}, "is not the plan of an experiment"),
        ({"learning_rates": ["fast"]}, "is not the plan of an experiment"),
        ({"more": 1}, "must have the parts"),
        ({"learning_rates": []}, "has no learning rate"),
        ({"questions": {"memory": {"none": 3}, "window": {"8": {}}}}, "is not the plan of an experiment"),
        ({"questions": {"peers": {"llama": {"peer": "llama"}}}}, "is not the plan of an experiment: KeyError"),
        ({"columns": ["colour"]}, "asks for a column 'colour'"),
        ({"tasks": {"short": CONTENT["tasks"]["short"] | {"tune_steps": 4}}}, "more steps than tune_steps"),
        (
            {"tasks": {"short": CONTENT["tasks"]["short"] | {"measured": {1024: {"length": 1024}}}}},
            "task short, measured names a part 1024, which YAML does not read as text",
        ),
        ({"tasks": {"short": CONTENT["tasks"]["short"] | {"learning_rates": 0.1}}}, "is not the plan of an experiment"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_a_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        plan_of(tmp_path, **changes)


def test_what_others_published_stands_beside_a_study(tmp_path: Path) -> None:
    study = {"name": "x", "task": "short", "sides": ["base"], "seeds": [0]}
    plan = plan_of(tmp_path, studies=[study | {"published": {"mamba2": {17_000: 0.69, 66_000: 0.83}}}])
    assert plan.studies[0].published == (Published("mamba2", 17_000, 0.69), Published("mamba2", 66_000, 0.83))
    drawn = tables(plan, {})
    assert drawn.keys() == {"x, published"}
    assert "| mamba2 | 66,000 | 83.0 |" in drawn["x, published"]
    with pytest.raises(InputError, match="is not the plan of an experiment"):
        plan_of(tmp_path, studies=[study | {"published": {"mamba2": 0.7}}])


@pytest.mark.parametrize("text", ["{", "- 1", ""])
def test_a_file_that_is_no_plan_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        read_plan(path)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_plans_of_the_project_can_be_read(path: Path) -> None:
    assert list(read_plan(path).work())
