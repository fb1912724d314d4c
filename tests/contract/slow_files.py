"""Checkpoints written slowly, a piece at a time, so that a kill is likely to come in the middle of a file."""

import io
import time
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from transformers import modeling_utils

__all__ = ["write_slowly"]

PIECES, PAUSE = 6, 0.01


def write_slowly() -> None:
    """Change this process's writers for good; the bytes that they write stay the same."""
    whole_save = torch.save

    def save(value: Any, path: Any, *rest: Any, **more: Any) -> None:
        buffer = io.BytesIO()
        whole_save(value, buffer, *rest, **more)
        _write(Path(path), buffer.getvalue())

    def save_tensors(tensors: dict[str, torch.Tensor], path: Any, metadata: dict[str, str] | None = None) -> None:
        _write(Path(path), safetensors.torch.save(tensors, metadata))

    torch.save = save
    modeling_utils.safe_save_file = save_tensors
    whole_replace = Path.replace

    def replace(path: Path, target: Any) -> Path:
        time.sleep(PAUSE)
        moved = whole_replace(path, target)
        time.sleep(PAUSE)
        return moved

    Path.replace = replace


def _write(path: Path, raw: bytes) -> None:
    size = -(-len(raw) // PIECES)
    with path.open("wb") as file:
        for start in range(0, len(raw), size):
            file.write(raw[start : start + size])
            file.flush()
            time.sleep(PAUSE)
