"""Result files are read as records, and what is wrong with one is told in a sentence."""

import json
from pathlib import Path

import pytest

from sheafstate.errors import InputError
from sheafstate.report import schema

from .conftest import FOCUS, LENGTHS, TOKENS, passage, simulated


def test_history(run: Path) -> None:
    history = schema.read_history(run / "history.jsonl")
    assert [point.step for point in history.train] == list(range(1, 21))
    assert history.train[4] == schema.TrainPoint(5, 500, 3.5)
    assert [point.nats_per_token for point in history.validation] == pytest.approx([3.1, 2.1])


def test_a_half_written_last_line_is_passed_over(run: Path) -> None:
    path = run / "history.jsonl"
    whole = schema.read_history(path)
    path.write_text(path.read_text() + '{"step": 21, "tok')
    assert schema.read_history(path) == whole


def test_a_broken_line_before_the_last_is_named(run: Path) -> None:
    path = run / "history.jsonl"
    path.write_text('{"step": 1, "loss": 2.0, "tokens": 3}\n{"step": 2, "loss": 2.0}\n{"step": 3}\n')
    with pytest.raises(InputError, match=r"history\.jsonl, line 2: no 'tokens'"):
        schema.read_history(path)


def test_unknown_lines_and_keys_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n\n{"step": 1, "loss": 2.0, "tokens": 3, "grad_norm": 1}\n')
    assert len(schema.read_history(path).train) == 1


def test_simulation(run: Path) -> None:
    simulation = schema.read_simulation(run / "simulation.json")
    assert simulation.main.length == 32_768
    assert simulation.main.sites["window"].coverage == 0.75
    assert simulation.main.sites["window"].coverage_by_type == {"local": 1.0, "topic": 0.0}
    assert tuple(point.length for point in simulation.scaling) == LENGTHS


def test_one_run_alone_is_a_simulation_without_scaling(tmp_path: Path) -> None:
    path = tmp_path / "simulation.json"
    path.write_text(json.dumps(simulated(1024)))
    simulation = schema.read_simulation(path)
    assert simulation.main.true_edges == 2048
    assert simulation.scaling == ()


def test_several_lengths_without_a_sweep_are_scaling(tmp_path: Path) -> None:
    path = tmp_path / "simulation.json"
    path.write_text(json.dumps({"runs": [simulated(4096), simulated(1024)]}))
    simulation = schema.read_simulation(path)
    assert simulation.main.length == 4096
    assert [run.length for run in simulation.scaling] == [1024, 4096]


def test_a_share_without_a_denominator_stays_none(tmp_path: Path) -> None:
    record = simulated(1024)
    record["sites"]["window"] |= {"edges": 0, "waste": None}
    path = tmp_path / "simulation.json"
    path.write_text(json.dumps(record))
    assert schema.read_simulation(path).main.sites["window"].waste is None


def test_passage(run: Path) -> None:
    read = schema.read_passage(run / "site.json")
    assert (list(read.tokens), read.focus, len(read.layers)) == (TOKENS, FOCUS, 2)
    assert read.layers[0].edges[1] == schema.Edge(FOCUS, FOCUS - 1, "syntax", 1, None)


def test_sample(run: Path) -> None:
    assert schema.read_sample(run / "sample.json").prompt == "ROMEO:\n"


BROKEN_PASSAGES = {
    "focus outside": {"focus": len(TOKENS)},
    "negative focus": {"focus": -1},
    "length that is not": {"length": 3},
    "no layers": {"layers": None},
    "short row": {"layers": [{"boundaries": {"syntax": [0.5]}, "addresses": [], "edges": []}]},
    "short addresses": {"layers": [{"boundaries": {}, "addresses": [[1, 2]], "edges": []}]},
    "edge to itself": {"layers": [passage()["layers"][1] | {"edges": [passage()["layers"][0]["edges"][0]]}]},
}
BROKEN_PASSAGES["edge to itself"]["layers"][0]["edges"][0]["earlier"] = FOCUS


@pytest.mark.parametrize("change", BROKEN_PASSAGES.values(), ids=BROKEN_PASSAGES)
def test_broken_passages_are_refused(tmp_path: Path, change: dict) -> None:
    path = tmp_path / "site.json"
    path.write_text(json.dumps(passage() | change))
    with pytest.raises(InputError, match=r"site\.json is no site of a passage"):
        schema.read_passage(path)


READERS = [schema.read_object, schema.read_simulation, schema.read_passage, schema.read_sample]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
@pytest.mark.parametrize("text", ["", "[1, 2]", "{", '"text"', "\x00\x01"])
def test_what_is_no_json_object_is_refused(tmp_path: Path, read, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"broken\.json"):
        read(path)


@pytest.mark.parametrize("read", READERS[1:], ids=lambda read: read.__name__)
@pytest.mark.parametrize("text", ["{}", '{"runs": []}', '{"tokens": 3, "layers": 4}', '{"sweeps": 1, "prompt": 2}'])
def test_what_lacks_its_parts_is_refused(tmp_path: Path, read, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"broken\.json is no"):
        read(path)


def test_a_binary_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\xff\xfe\x00\n\n")
    with pytest.raises(InputError, match=r"history\.jsonl"):
        schema.read_history(path)
