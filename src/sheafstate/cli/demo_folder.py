"""The demo's folder: it is taken over only if it is the demo's own, and nothing else in it is touched."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sheafstate.errors import InputError

if TYPE_CHECKING:
    from sheafstate.training import TrainingOptions

__all__ = ["claim"]

MARK = "demo.json"
"""File that says a folder is the demo's."""

KIND = "sheafstate demo"
REPORT = "report.html"
"""What the demo writes last."""

RESULTS = (REPORT, "sample.json", "site.json", "simulation.json", "runs.csv")
"""What the demo writes besides the training's own files, which the training replaces."""


def claim(out: Path, training: "TrainingOptions") -> bool:
    """Make the folder, or take it over from an earlier demo.

    Returns:
        Whether an interrupted demo with the same training is to be gone on with.

    Raises:
        InputError: it is a file, or holds files and no demo's mark.
    """
    from sheafstate.training.files import write_json

    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; the demo needs a folder")
    out.mkdir(parents=True, exist_ok=True)
    mark = out / MARK
    if any(out.iterdir()) and not _is_ours(mark):
        raise InputError(f"{out} holds files that no demo left there; give a new or an empty folder with --out")
    resume = _interrupted(out, training)
    for name in () if resume else RESULTS:
        (out / name).unlink(missing_ok=True)
    write_json(mark, {"kind": KIND})
    return resume


def _is_ours(mark: Path) -> bool:
    try:
        return json.loads(mark.read_text(encoding="utf-8"))["kind"] == KIND
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _interrupted(out: Path, training: "TrainingOptions") -> bool:
    """Whether a demo with the same training was stopped between its first checkpoint and its end."""
    from sheafstate.training import last_checkpoint

    if (out / REPORT).exists() or last_checkpoint(out) is None:
        return False
    try:
        earlier = json.loads((out / "options.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    wanted = training.fixed() | {"steps": training.steps}
    return isinstance(earlier, dict) and all(earlier.get(name) == value for name, value in wanted.items())
