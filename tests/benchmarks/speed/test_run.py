"""Sides take turns, ratios are of medians, and what is measured is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from sheafstate.benchmarks.speed import book, turns, works
from sheafstate.benchmarks.speed.book import Book
from sheafstate.benchmarks.speed.machine import Machine
from sheafstate.benchmarks.speed.memory import peak_mib
from sheafstate.benchmarks.speed.run import compare
from sheafstate.benchmarks.speed.sides import make_side
from sheafstate.benchmarks.speed.turns import Timing, take_turns
from sheafstate.benchmarks.speed.works import Kind, Work, prepare
from sheafstate.errors import InputError


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book, "measure_machine", lambda: Machine(100.0, 200.0, 10.0, 1))


def test_sides_take_turns_and_the_first_calls_stand_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    order, clock = [], [0.0]
    lasts = {"a": iter([9.0, 8.0, 1.0, 3.0, 2.0]), "b": iter([7.0, 7.0, 5.0, 4.0, 6.0])}

    def call(name: str) -> None:
        order.append(name)
        clock[0] += next(lasts[name])

    monkeypatch.setattr(turns.time, "perf_counter", lambda: clock[0])
    found = take_turns({"a": lambda: call("a"), "b": lambda: call("b")}, repeats=3)
    assert order == ["a", "b"] * 5
    assert found == {"a": Timing((9.0, 8.0), (1.0, 3.0, 2.0)), "b": Timing((7.0, 7.0), (5.0, 4.0, 6.0))}
    assert found["a"].median == 2.0


def record(side: str, seconds: float, work: Work, ceiling: float = 2.0) -> dict[str, Any]:
    parts = {"kind": work.kind, "context": work.context, "dtype": work.dtype, "compiled": work.compiled}
    return {"name": str(work), "work": parts, "side": side, "median_seconds": seconds, "ceiling": ceiling}


def test_a_target_is_met_at_its_figure_or_at_a_share_of_the_ceiling() -> None:
    work, other = Work(Kind.TRAIN, 2048), Work(Kind.TRAIN, 777)
    measured = [record("sheaf-state", 2.0, work), record("llama", 2.9, work), record("complete", 9.0, work)]
    found = list(compare([*measured, record("llama", 1.0, other)]))
    assert [(r["against"], r["ratio"], r["target"]) for r in found] == [("llama", 1.45, 1.5), ("complete", 4.5, None)]
    assert found[0]["limit"] == pytest.approx(1.4)
    assert found[0]["met"] is True
    assert found[1]["met"] is None


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("side", ["sheaf-state", "llama", "mamba2"])
def test_every_side_does_every_work(kind: Kind, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(works, "STEP_TOKENS", 32)
    call = prepare(make_side(side, "tiny"), Work(kind, 16))
    call()
    call()


def test_what_a_book_holds_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, work = tmp_path / "bench.json", Work(Kind.PREFILL, 16)
    first = Book(path, "tiny", 1)
    assert first.missing(work, ["llama"]) == ["sheaf-state", "llama"]
    first.time(work, ["sheaf-state", "llama"], repeats=1)
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert {r["side"] for r in kept["times"]} == {"sheaf-state", "llama"}
    second = Book(path, "tiny", 1)
    assert second.missing(work, ["llama"]) == []
    assert second.missing(work, ["llama", "complete"]) == ["sheaf-state", "llama", "complete"]
    monkeypatch.setattr(
        book,
        "measure_memory",
        lambda contexts, sides, *_: [{"context": contexts[0], "side": sides[0], "dtype": "fp32", "peak_mib": 1.0}],
    )
    second.weigh([64], ["sheaf-state"], "fp32")
    second.weigh([64], ["sheaf-state"], "fp32")
    assert len(json.loads(path.read_text(encoding="utf-8"))["memory"]) == 1


@pytest.mark.parametrize(("preset", "threads", "text"), [("small", 1, None), ("tiny", 2, None), ("tiny", 1, "{")])
def test_a_book_of_something_else_is_refused(tmp_path: Path, preset: str, threads: int, text: str | None) -> None:
    path = tmp_path / "bench.json"
    written = {"preset": "tiny", "machine": {"threads": 1}, "times": [], "memory": []}
    path.write_text(json.dumps(written) if text is None else text, encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"bench\.json"):
        Book(path, preset, threads)
    assert path.read_bytes() == before


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="huge"):
        Book(None, "huge", 1)
    mine = Book(None, "tiny", 1)
    with pytest.raises(InputError, match="gpt"):
        mine.missing(Work(Kind.TRAIN, 8), ["gpt"])
    with pytest.raises(InputError, match="fp8"):
        mine.missing(Work(Kind.TRAIN, 8, "fp8"), ["llama"])


def test_memory_grows_with_the_context() -> None:
    short, long = (peak_mib("sheaf-state", "tiny", n, "fp32", 1) for n in (64, 4096))
    assert 0 < short < long
