"""Tables of a bench in a page."""

import json
from pathlib import Path

import pytest

from sheafstate.benchmarks.speed.__main__ import main

RECORD = {
    "machine": {"threads": 2, "gflops": 251.4, "gflops_bf16": 130.0, "gbytes": 9.84},
    "times": [
        {
            "name": "prefill 2,048 fp32",
            "side": "llama",
            "median_seconds": 0.25,
            "seconds": [0.3, 0.25, 0.2],
            "warmup_seconds": [1.5, 0.3],
            "tokens_per_second": 8192.0,
            "share_of_floor": 0.5,
        }
    ],
    "ratios": [
        {
            "name": "prefill 2,048 fp32",
            "against": "llama",
            "ratio": 1.234,
            "ceiling": 2.0,
            "target": 1.6,
            "limit": 1.4,
            "met": False,
        }
    ],
    "memory": [{"context": 2048, "side": "llama", "peak_mib": 100.0}],
}


def test_marked_tables_of_a_page_are_drawn_from_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, page = tmp_path / "small" / "bench.json", tmp_path / "page.md"
    record.parent.mkdir()
    record.write_text(json.dumps(RECORD))
    page.write_text("before\n<!-- table: small, ratios -->\nold\n<!-- end -->\nafter\n")
    assert main([str(record.parent), "--into", str(page)]) == 0
    text = page.read_text()
    assert "| prefill 2,048 fp32 | llama | 1.23 | 2.00 | 1.6 | 1.40 | no |" in text
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    assert main([str(record.parent)]) == 0
    printed = capsys.readouterr().out
    assert "| prefill 2,048 fp32 | llama | 250 | 200 | 1.50 | 8,192 | 50 |" in printed
    assert "| 2,048 | llama | 100 | 50.0 |" in printed
    assert "| 2 | 251 | 130 | 9.8 |" in printed


@pytest.mark.parametrize("text", ["{", "[]", '{"machine": {}}'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(text)
    assert main([str(tmp_path)]) == 1
    assert "is no record of a bench" in capsys.readouterr().err
    assert main([str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err
