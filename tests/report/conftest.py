"""A run that never was: small result files whose every figure is known."""

import json
from pathlib import Path
from typing import Any

import pytest

LENGTHS = (1024, 4096, 32_768)
TOKENS = list("Now <is>\tthe & $winter$\n")
FOCUS = 20


def simulated(length: int) -> dict[str, Any]:
    """Two true edges a position; the window misses the topics."""
    true = 2 * length

    def site(edges: int, shared: int, topics: float) -> dict[str, Any]:
        return {
            "edges": edges,
            "coverage": shared / true,
            "waste": 1 - shared / edges,
            "edges_per_token": edges / length,
            "by_type": {"local": {"coverage": 1.0}, "topic": {"coverage": topics}},
        }

    sites = {
        "dense": site(length * length // 2, true, 1.0),
        "window": site(8 * length, true * 3 // 4, 0.0),
        "sheaf": site(4 * length, true, 1.0),
    }
    return {"length": length, "seed": 0, "true_edges": true, "sites": sites}


def passage() -> dict[str, Any]:
    def edge(earlier: int, name: str, head: int, weight: float | None) -> dict[str, Any]:
        return {"later": FOCUS, "earlier": earlier, "type": name, "head": head, "weight": weight}

    edges = [edge(FOCUS - 1, "local", 0, 0.75), edge(FOCUS - 1, "syntax", 1, None), edge(2, "retrieval", 2, 0.5)]
    other = {"later": 5, "earlier": 4, "type": "local", "head": 0, "weight": 1.0}
    layer = {
        "boundaries": {"syntax": [0.1] * len(TOKENS), "topic": [0.5] * len(TOKENS)},
        "addresses": [[position % 4 for position in range(len(TOKENS))]],
        "edges": [*edges, other],
    }
    bare = {"boundaries": {}, "addresses": [], "edges": []}
    return {"tokens": TOKENS, "length": len(TOKENS), "focus": FOCUS, "layers": [layer, bare]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with every result file."""
    return write_run(tmp_path / "run <1>")


def write_run(folder: Path) -> Path:
    folder.mkdir()
    metrics = {
        "val_nats_per_token": 1.625,
        "val_bits_per_byte": 2.3444,
        "parameters": 812_345,
        "train_tokens": 1_536_000,
        "seconds": 241.3,
        "note": "<img src=x onerror=alert(1)>",
        "references": {"another & one": 1.88},
    }
    record = {
        "kind": "simulation",
        "runs": [simulated(32_768)],
        "sweeps": {"scaling": {"points": [{"run": simulated(length)} for length in LENGTHS]}},
    }
    history = [{"step": s, "tokens": 100 * s, "loss": 4.0 - s / 10, "learning_rate": 1e-3} for s in range(1, 21)]
    validation = [{"step": s, "val_nats_per_token": 4.1 - s / 10, "val_bits_per_byte": 5.0} for s in (10, 20)]
    sample = {"prompt": "ROMEO:\n", "text": "What <script>alert(1)</script> & light\n"}
    files = {"metrics.json": metrics, "simulation.json": record, "sample.json": sample, "site.json": passage()}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    lines = "".join(json.dumps(entry) + "\n" for entry in (*history, *validation))
    (folder / "history.jsonl").write_text(lines, encoding="utf-8")
    return folder
