"""What a run leaves in its folder: a checkpoint for others, and the figures with all that is needed to repeat them."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate import __version__
from sheafstate.training.checkpoints import STAGING, saving
from sheafstate.training.files import flush, replace

__all__ = ["EXPORTED", "count_parameters", "describe_machine", "export"]


EXPORTED = (
    *("config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"),
)
"""Names of the files that :func:`export` leaves, or may leave with a tokenizer of somebody else."""


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, run: Path) -> None:
    """Write configuration, weights (safetensors), generation settings and tokenizer into ``run``, safely.

    All is written beside its place first, so that a full disk leaves an earlier export as it was.

    Raises:
        InputError: the disk does not take it.
    """
    staged = run / STAGING / "export"
    with saving(run, "model"):
        shutil.rmtree(run / STAGING, ignore_errors=True)
        model.save_pretrained(staged)
        tokenizer.save_pretrained(staged)
        for path in staged.iterdir():
            flush(path)
        for path in sorted(staged.iterdir()):
            replace(path, run / path.name)
        shutil.rmtree(run / STAGING)


def count_parameters(model: PreTrainedModel) -> dict[str, int]:
    """Parameters in all, shared ones once, and those that are no embedding."""
    total = sum(parameter.numel() for parameter in model.parameters())
    embedding = sum(parameter.numel() for parameter in model.get_input_embeddings().parameters())
    return {"parameters": total, "parameters_without_embedding": total - embedding}


def describe_machine() -> dict[str, Any]:
    """Versions, threads, command and, in a checkout, the commit."""
    return {
        "versions": {
            "sheafstate": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
        "machine": platform.platform(),
        "threads": torch.get_num_threads(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the checkout that this package is imported from; ``None`` outside one."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
