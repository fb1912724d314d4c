"""Tables say what the records say."""

from pathlib import Path
from typing import Any

import pytest

from sheafstate.benchmarks.experiments.records import append_record, read_records
from sheafstate.benchmarks.experiments.tables import tables
from sheafstate.benchmarks.pages import replace_tables
from sheafstate.errors import InputError

from .test_plan import plan_of


def records_of(plan: Any, losses: dict[tuple[str, int], float]) -> dict[str, Any]:
    """A record of every short run, all alike, and of the long runs that have a loss."""
    records = {}
    for side in {side for side, _ in losses}:
        for run in plan.tuning("short", side):
            records[run.key] = {
                "key": run.key,
                "learning_rate": run.learning_rate,
                "figures": {"loss": run.learning_rate},
            }
    for (side, seed), loss in losses.items():
        run = plan.full("short", side, 0.001, seed)
        figures = {"loss": loss, "bits_per_byte_512": loss, "accuracy_4_in_32": loss / 10}
        records[run.key] = {
            **{"key": run.key, "learning_rate": 0.001, "seed": seed, "figures": figures},
            "state_bytes": 2048,
            "d_ff": 7,
        }
    return records


def test_means_spreads_and_differences_of_the_same_seed(tmp_path: Path) -> None:
    studies = [{"name": "all", "task": "short", "sides": ["base", "window/8"], "seeds": [0, 1]}]
    plan = plan_of(tmp_path, studies=studies)
    losses = {("base", 0): 1.0, ("base", 1): 3.0, ("window/8", 0): 1.5, ("window/8", 1): 3.7}
    drawn = tables(plan, records_of(plan, losses))["all"].splitlines()
    compared = "bits/byte at 512 | 4 pairs in 32, %"
    assert (
        drawn[0] == f"| side | lr | {compared} | Δ bits/byte at 512 | Δ 4 pairs in 32, % | d_ff | state, KiB | seeds |"
    )
    assert drawn[2] == "| base | 0.001 | 2.0000 ± 1.4142 | 20.0 ± 14.1 |  |  | 7 | 2 | 2 |"
    assert (
        drawn[3] == "| window/8 | 0.001 | 2.6000 ± 1.5556 | 26.0 ± 15.6 | +0.6000 ± 0.1414 | +6.0 ± 1.4 | 7 | 2 | 2 |"
    )


def test_a_side_without_records_and_a_study_without_sides_are_left_out(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    drawn = tables(plan, records_of(plan, {("base", 0): 1.0}))
    assert "window/8" not in drawn["first"]
    assert tables(plan, {}) == {}


def test_a_page_gets_the_tables_between_its_marks() -> None:
    page = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n<!-- table: two -->\n<!-- end -->\n"
    new = replace_tables(page, {"one": "| 1 |", "two": "| 2 |"})
    assert new == "a\n<!-- table: one -->\n\n| 1 |\n\n<!-- end -->\nb\n<!-- table: two -->\n\n| 2 |\n\n<!-- end -->\n"
    assert replace_tables(new, {"one": "| 1 |", "two": "| 2 |"}) == new
    for broken in ("<!-- table: three --><!-- end -->", "<!-- table: one -->"):
        with pytest.raises(InputError):
            replace_tables(broken, {"one": "| 1 |"})


def test_records_are_added_and_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records" / "one.jsonl"
    for key in ("a", "b"):
        append_record(path, {"key": key, "figures": {}})
    assert list(read_records(path)) == ["a", "b"]
    with path.open("a") as file:
        file.write('{"key": "c"')
    with pytest.raises(InputError, match="line 3"):
        read_records(path)
