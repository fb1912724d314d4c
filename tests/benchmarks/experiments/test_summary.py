"""A comparison as one object, and that peers and sites are sides like any other."""

from pathlib import Path

import pytest

from sheafstate.benchmarks.experiments.execute import execute, make_model
from sheafstate.benchmarks.experiments.plan import QUICK, read_plan
from sheafstate.benchmarks.experiments.records import Record
from sheafstate.benchmarks.experiments.summary import summarize
from sheafstate.benchmarks.experiments.tables import tables
from sheafstate.errors import InputError
from tests.documents.markdown import ROOT

from .test_run import run_of, text_spec

PEER = {"peer": "llama", "width": 32, "layers": 1, "d_head": 16, "parameters": 20_000}


@pytest.mark.parametrize("path", [QUICK, ROOT / "experiments" / "compare.yaml"], ids=["quick", "compare"])
def test_every_side_of_the_plans_is_as_large_as_the_base_and_of_its_task_alone(path: Path) -> None:
    plan = read_plan(path)
    for study in plan.studies:
        for side in study.sides:
            run = plan.full(study.task, side, 0.001, 0)
            model = make_model(run.model, 4096)
            size = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
            if "parameters" in plan.tasks[study.task]["model"]:  # elsewhere it is the state that sides have in common
                assert abs(size / run.model["parameters"] - 1) < 0.02, side
            assert ("preset" in run.model) == ("peer" not in run.model)
    assert {side for study in plan.studies for side in study.sides} == set(plan.sides)
    assert "peers/gated-delta-net" in plan.sides


def records_of(folder: Path) -> tuple[Record, Record]:
    spec = text_spec(folder) | {"by_position": True}
    test = folder / "test.txt"
    test.write_text((folder / "validation.txt").read_text()[:700], encoding="utf-8")
    ours = execute(run_of(spec | {"test": str(test)}), "full", folder)
    return ours, execute(run_of(spec, model=PEER), "full", folder)


def test_a_peer_leaves_a_record_like_ours(tmp_path: Path) -> None:
    ours, peer = records_of(tmp_path)
    assert ours.keys() == peer.keys()
    assert ours["figures"].keys() == peer["figures"].keys()
    assert {"nats_from_0"} <= ours["figures"].keys()
    assert peer["parameters"]["non_embedding"] == pytest.approx(20_000, rel=0.02)
    assert peer["state_elements"] == 2 * 32 * 32
    assert ours["figures"]["bits_per_byte_32"] != peer["figures"]["bits_per_byte_32"]
    with pytest.raises(InputError, match="the shape of a peer is"):
        make_model({"peer": "llama", "parameters": 1, "depth": 3}, 64)


def test_the_test_text_is_measured_and_the_validation_text_chooses(tmp_path: Path) -> None:
    spec = text_spec(tmp_path)
    other = spec | {"test": spec["train"]}
    held_out, trained_on = (execute(run_of(s, steps=30), "full", tmp_path) for s in (spec, other))
    assert trained_on["figures"]["loss"] < held_out["figures"]["loss"]
    tuned = [execute(run_of(s, steps=30), "tune", tmp_path)["figures"]["loss"] for s in (spec, other)]
    assert tuned[0] == tuned[1]


def test_a_summary_has_every_side_with_its_seeds() -> None:
    plan = read_plan(QUICK)
    run, other = (plan.full("shakespeare", side, 0.003, 0) for side in ("base", "peers/llama"))
    records = {}
    for side in ("base", "peers/llama"):
        for short in plan.tuning("shakespeare", side):
            loss = abs(short.learning_rate - 0.003)
            records[short.key] = {"key": short.key, "figures": {"loss": loss}}
    for full, loss in ((run, 1.0), (other, 2.0)):
        records[full.key] = {
            **{"key": full.key, "learning_rate": 0.003, "tokens": 9, "tokens_per_second": 5.0, "state_elements": 7},
            "parameters": {"non_embedding": 10, "active": 10},
            "figures": {"loss": loss, "bits_per_byte_256": loss, "nats_from_0": loss},
        }
    found = summarize(plan, records)
    assert found["kind"] == "comparison"
    (study,) = found["studies"]
    assert [side["side"] for side in study["sides"]] == ["base", "peers/llama"]
    assert study["sides"][1] == {
        **{"side": "peers/llama", "learning_rate": 0.003, "parameters": 10, "active": 10, "state_elements": 7},
        **{"tokens": 9, "tokens_per_second": 5.0, "seeds": [0]},
        "figures": {"loss": [2.0], "bits_per_byte_256": [2.0], "nats_from_0": [2.0]},
    }
    drawn = tables(plan, records)
    name = "Shakespeare, a first look"
    assert drawn[f"{name}, by position"].splitlines()[-1] == "| peers/llama | 2.000 |"
    assert "nats_from" not in drawn[name]
    assert drawn[name].splitlines()[-1] == "| peers/llama | 0.003 | 2.0000 | +1.0000 | 10 | 7 | 5 | 1 |"
    assert summarize(plan, {})["studies"] == []
