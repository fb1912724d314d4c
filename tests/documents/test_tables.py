"""Tables in the documents are those that the committed records give."""

from pathlib import Path

from sheafstate.benchmarks.experiments.plan import read_plan
from sheafstate.benchmarks.experiments.records import read_records
from sheafstate.benchmarks.experiments.tables import tables
from sheafstate.benchmarks.pages import replace_tables
from sheafstate.benchmarks.speed import tables as speed
from sheafstate.report.schema import read_object

from .markdown import ROOT


def drawn(plan: Path) -> dict[str, str]:
    return tables(read_plan(plan), read_records(plan.parent / "records" / f"{plan.stem}.jsonl"))


def test_tables_of_experiments_follow_from_the_records() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    every = {name: text for plan in (ROOT / "experiments").glob("*.yaml") for name, text in drawn(plan).items()}
    assert page.count("<!-- table: ") >= 1
    assert replace_tables(page, every) == page


def test_tables_of_results_follow_from_the_records() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert page.count("<!-- table: ") >= 6
    assert replace_tables(page, drawn(ROOT / "experiments" / "compare.yaml")) == page


def test_tables_of_performance_follow_from_the_records() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    records = {path.parent.name: read_object(path) for path in (ROOT / "docs" / "speed").glob("*/bench.json")}
    every = {table: text for name, record in records.items() for table, text in speed.tables(record, name).items()}
    assert page.count("<!-- table: ") >= 3
    assert replace_tables(page, every) == page
