"""The figures of a comparison, from its file alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from sheafstate.errors import InputError
from sheafstate.report.comparison_plots import draw_comparison

PNG = b"\x89PNG"


def side(name: str, figures: dict[str, list[float | None]]) -> dict[str, Any]:
    return {"side": name, "state_elements": 1000 * len(name), "figures": figures}


def write(folder: Path, *studies: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps({"kind": "comparison", "studies": studies}), encoding="utf-8")
    return folder


def test_what_there_is_data_for_is_drawn(tmp_path: Path) -> None:
    text = {
        "bits_per_byte_512": [1.7, 1.8],
        "bits_per_byte_2048": [1.6, None],
        "nats_from_0": [5.0],
        "nats_from_64": [4],
    }
    recall = {"loss": [1.0], "accuracy_4_in_64": [1.0], "accuracy_8_in_64": [0.5], "accuracy_mean": [0.75]}
    studies = [
        {"name": "On text, seed 0", "context": 512, "sides": [side("base", text), side("peers/llama", text)]},
        {
            "name": "Recall",
            "sides": [side("base", recall), side("site/window", recall)],
            "published": [{"side": "mamba2", "state_elements": 900, "accuracy": 0.5}],
        },
        {"name": "Nothing", "sides": [side("base", {"loss": [1.0]})]},
    ]
    drawn = draw_comparison(write(tmp_path, *studies))
    assert [path.name for path in drawn] == [
        "on-text-seed-0-length.png",
        "on-text-seed-0-position.png",
        "recall-state.png",
    ]
    assert all(path.read_bytes().startswith(PNG) for path in drawn)
    before = [path.read_bytes() for path in drawn]
    assert [path.read_bytes() for path in draw_comparison(tmp_path)] == before


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"kind": "bench"}')
    with pytest.raises(InputError, match="is not a comparison"):
        draw_comparison(tmp_path)


def test_what_was_published_is_drawn_with_the_rest(tmp_path: Path) -> None:
    study = {"name": "Recall", "sides": [side("base", {"accuracy_mean": [0.75]})]}
    (alone,) = draw_comparison(write(tmp_path / "alone", study))
    points = [{"side": "mamba2", "state_elements": n, "accuracy": 0.5} for n in (900, 9000)]
    (beside,) = draw_comparison(write(tmp_path / "beside", study | {"published": points}))
    assert alone.read_bytes() != beside.read_bytes()
