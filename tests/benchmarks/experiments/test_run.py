"""A plan is run from its file to its records, and what has a record is not run again."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sheafstate.accounting import parameters
from sheafstate.benchmarks.experiments import tasks
from sheafstate.benchmarks.experiments.__main__ import main
from sheafstate.benchmarks.experiments.execute import execute, fitted_config, make_model
from sheafstate.benchmarks.experiments.plan import Run
from sheafstate.benchmarks.experiments.records import read_records
from sheafstate.benchmarks.experiments.tasks import make_task
from sheafstate.data import read_documents
from sheafstate.errors import InputError
from sheafstate.evaluation import NotFiniteError

MODEL = {"preset": "tiny", "num_layers": 1, "d_model": 32, "d_head": 16}


def run_of(spec: dict[str, Any], **changes: Any) -> Run:
    fields = {"task": "t", "side": "base", "spec": spec, "model": MODEL, "learning_rate": 0.01, "steps": 3, "seed": 1}
    return Run(**(fields | changes))


RECALL = {"kind": "recall", "vocab_size": 64, "pairs": 2, "context": 16, "rows": 2, "measured": [[2, 16]]} | {
    "measured_rows": 3
}
DEPENDENCIES = {"kind": "dependencies", "context": 64, "rows": 2, "measured_contexts": [64], "measured_rows": 3}


def text_spec(folder: Path) -> dict[str, Any]:
    text = read_documents("tinyshakespeare")[0]
    (folder / "train.txt").write_text(text[:8000], encoding="utf-8")
    (folder / "validation.txt").write_text(text[8000:10000], encoding="utf-8")
    return {
        **{"kind": "text", "train": str(folder / "train.txt"), "validation": str(folder / "validation.txt")},
        **{"tokenizer": "bpe:300", "context": 32, "rows": 2, "measured_contexts": [32, 64]},
        "measured_characters": 1000,
    }


@pytest.mark.parametrize("kind", ["recall", "dependencies", "text"])
def test_every_kind_of_task_is_learned_and_measured(tmp_path: Path, kind: str) -> None:
    spec = {"recall": RECALL, "dependencies": DEPENDENCIES, "text": text_spec(tmp_path)}[kind]
    first = execute(run_of(spec), "full", tmp_path)
    again = execute(run_of(spec), "full", tmp_path)
    assert first["figures"] == again["figures"]
    assert first["losses"] == again["losses"]
    assert first["losses"][-1][0] == 3
    expected = {
        "recall": {"loss", "accuracy_2_in_16"},
        "dependencies": {"loss", "accuracy_64", "accuracy_64_local"},
        "text": {"loss", "bits_per_byte_32", "bits_per_byte_64"},
    }[kind]
    assert expected <= set(first["figures"])
    assert first["tokens"] == 3 * 2 * spec["context"]
    other = execute(run_of(spec, seed=2), "full", tmp_path)
    assert other["figures"]["loss"] != first["figures"]["loss"]
    tuned = execute(run_of(spec), "tune", tmp_path)["figures"]
    assert tuned.keys() == ({"loss", "bits_per_byte_32"} if kind == "text" else {"loss"})


def test_a_rate_is_chosen_by_every_test_and_on_rows_of_their_own(tmp_path: Path) -> None:
    model = make_model({"preset": "tiny", "num_layers": 1, "d_ff": 8}, 64).eval()
    tests = [[2, 16], [4, 32]]
    figures = [
        make_task(RECALL | {"measured": chosen}, tmp_path).measure(model, True)
        for chosen in (tests, tests[:1], tests[1:])
    ]
    both, first, second = (found["loss"] for found in figures)
    assert both == pytest.approx((first + second) / 2)
    assert first != make_task(RECALL, tmp_path).measure(model, False)["loss"]


SMALL_TASKS = {
    "induction": {"length": 16, "vocab_size": 8},
    "copying": {"length": 24, "symbols": 4, "vocab_size": 8},
    "phone book": {"entries": 3, "names": 3, "digits": 2, "queries": 1},
    "dyck": {"length": 16, "kinds": 2, "depth": 3},
}


@pytest.mark.parametrize("kind", SMALL_TASKS)
def test_small_tasks_are_learned_and_measured_in_other_forms_too(tmp_path: Path, kind: str) -> None:
    form = SMALL_TASKS[kind]
    change = {"longer": {"length": 32}} if "length" in form else {"longer": {"entries": 5}}
    context = {"phone book": 3 * 4 + 5}.get(kind, form.get("length"))
    spec = {"kind": kind, "form": form, "context": context, "rows": 2, "measured": change, "measured_rows": 3}
    with pytest.raises(InputError, match=f"have {context} tokens"):
        make_task(spec | {"context": 9}, tmp_path)
    record = execute(run_of(spec), "full", tmp_path)
    assert {"loss", "accuracy", "accuracy_longer", "accuracy_mean"} <= set(record["figures"])
    assert ("accuracy_depth_1" in record["figures"]) == (kind == "dyck")


def test_rows_of_recall_take_turns_with_several_numbers_of_pairs(tmp_path: Path) -> None:
    spec = RECALL | {"pairs": [1, 2, 4], "measured": [[1, 16], [4, 16]]}
    task = make_task(spec, tmp_path)
    counts = {int((row["targets"] >= 0).sum()) for row in (task.rows(6, 0)[i] for i in range(6))}
    assert counts == {1, 2, 4}
    figures = execute(run_of(spec), "full", tmp_path)["figures"]
    assert figures["accuracy_mean"] == (figures["accuracy_1_in_16"] + figures["accuracy_4_in_16"]) / 2


def test_a_loss_that_is_no_number_leaves_a_record_without_figures(tmp_path: Path) -> None:
    model = MODEL | {"initializer_range": 1e30}
    record = execute(run_of(RECALL, model=model), "tune", tmp_path)
    assert record["figures"] == {}
    assert record["losses"][-1][1] is None


def test_predictions_that_are_no_numbers_leave_a_record_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object, **options: object) -> None:
        raise NotFiniteError("no numbers")

    monkeypatch.setattr(tasks, "evaluate", lost)
    assert execute(run_of(text_spec(tmp_path)), "tune", tmp_path)["figures"] == {}


@pytest.mark.parametrize(
    "model", [MODEL, {"peer": "llama", "width": 32, "layers": 1, "d_head": 16, "parameters": 20_000}]
)
@pytest.mark.parametrize("bf16", [False, True])
def test_products_are_in_the_type_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bf16: bool, model: dict[str, Any]
) -> None:
    """The loss is computed from the model's body, which the Trainer does not wrap."""
    seen = set()
    through = torch.nn.functional.silu

    def noting(x: torch.Tensor, *rest: object, **options: object) -> torch.Tensor:
        if torch.is_grad_enabled():
            seen.add(torch.is_autocast_enabled("cpu"))
        return through(x, *rest, **options)

    monkeypatch.setattr(torch.nn.functional, "silu", noting)
    execute(run_of(RECALL | {"bf16": bf16}, model=model), "tune", tmp_path)
    assert seen == {bf16}


def test_texts_that_peers_would_join_and_graphs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    spec = text_spec(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        make_task(spec | {"graphs": {"mine": str(tmp_path / "none.jsonl")}}, tmp_path)
    several = tmp_path / "several.jsonl"
    several.write_text('{"text": "one text"}\n{"text": "another"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="several documents"):
        make_task(spec | {"train": str(several)}, tmp_path / "other")


def test_sides_are_brought_to_the_same_parameters() -> None:
    for fields in ({}, {"num_experts": 2}, {"gluing": "plain"}, {"heads": {"local": 9}}):
        config = fitted_config({"preset": "tiny", "parameters": 1_000_000, **fields}, 256)
        assert abs(parameters(config).non_embedding / 1e6 - 1) < 0.002
    with pytest.raises(InputError, match="narrowest"):
        fitted_config({"preset": "tiny", "parameters": 10_000}, 256)


def test_what_is_missing_is_run_and_nothing_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = {
        "name": "small",
        "learning_rates": [0.001, 0.01],
        "tasks": {"recall": RECALL | {"steps": 2, "tune_steps": 1, "model": MODEL}},
        "questions": {},
        "studies": [{"name": "only", "task": "recall", "sides": ["base"], "seeds": [0]}],
    }
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(content), encoding="utf-8")
    command = ["run", str(plan), "--work", str(tmp_path / "work")]
    assert main(command) == 0
    assert len(read_records(tmp_path / "records" / "plan.jsonl")) == 3
    assert "3 runs made" in capfd.readouterr().out
    assert main(command) == 0
    assert "0 runs made" in capfd.readouterr().out
    assert main(["table", str(plan), str(plan)]) == 0
    assert "| base |" in capfd.readouterr().out


def test_a_run_that_fails_is_named_with_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = {
        "name": "small",
        "learning_rates": [0.001],
        "tasks": {"recall": RECALL | {"steps": 2, "tune_steps": 1, "model": MODEL | {"windw": 3}}},
        "questions": {},
        "studies": [{"name": "only", "task": "recall", "sides": ["base"], "seeds": [0]}],
    }
    plan = tmp_path / "plan.yaml"
    plan.write_text(yaml.safe_dump(content), encoding="utf-8")
    assert main(["run", str(plan), "--work", str(tmp_path / "work")]) == 1
    assert "its log is" in capfd.readouterr().err
    assert "windw" in next((tmp_path / "work" / "logs").iterdir()).read_text()
