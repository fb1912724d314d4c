"""The trained model that comes with the package, known by name."""

from importlib import resources
from pathlib import Path

__all__ = ["PACKAGED_MODELS", "checkpoint_folder", "is_packaged"]

PACKAGED_MODELS = ("novels",)
"""Checkpoints that come with the package."""

_FOLDER = "pretrained"


def is_packaged(checkpoint: str | Path) -> bool:
    """Whether this names a packaged model; a folder that is there goes before one of the same name."""
    return str(checkpoint) in PACKAGED_MODELS and not Path(checkpoint).exists()


def checkpoint_folder(checkpoint: str | Path) -> Path:
    """The folder of a checkpoint: its path as given, or where the packaged model of that name lies."""
    if not is_packaged(checkpoint):
        return Path(checkpoint)
    return Path(str(resources.files("sheafstate"))) / _FOLDER / str(checkpoint)
