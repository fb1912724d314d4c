"""The bench's figures are drawn from its record alone, and only from one."""

import json
from pathlib import Path

import pytest

from sheafstate.errors import InputError
from sheafstate.report.speed_plots import draw_speed


def times(side: str, kind: str, seconds: dict[int, float], compiled: bool = False) -> list[dict]:
    return [
        {
            "side": side,
            "work": {"kind": kind, "context": n, "dtype": "fp32", "compiled": compiled},
            "median_seconds": value,
        }
        for n, value in seconds.items()
    ]


def test_what_the_record_has_is_drawn(tmp_path: Path) -> None:
    record = {
        "kind": "bench",
        "times": times("sheaf-state", "prefill", {512: 0.1, 2048: 0.4}) + times("llama", "train", {512: 0.1}, True),
        "memory": [{"side": "llama", "context": n, "dtype": "fp32", "peak_mib": n / 3} for n in (512, 2048)],
    }
    (tmp_path / "bench.json").write_text(json.dumps(record), encoding="utf-8")
    assert [path.name for path in draw_speed(tmp_path)] == ["time.png", "memory.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("time.png", "memory.png"))
    record["memory"] = []
    (tmp_path / "bench.json").write_text(json.dumps(record), encoding="utf-8")
    assert [path.name for path in draw_speed(tmp_path)] == ["time.png"]


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "simulation"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bench.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="bench"):
        draw_speed(tmp_path)
