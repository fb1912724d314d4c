"""Sheaf-State language models: a learned sparse site of typed patches instead of the complete graph of tokens.

Importing this package registers the model with transformers' Auto classes. What it offers is imported when it is first
asked for, so that the simulation and the command line's help do not wait for PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sheafstate.registration import watch

if TYPE_CHECKING:
    from sheafstate import edges, simulation
    from sheafstate.config import SheafStateConfig
    from sheafstate.modeling import SheafStateForCausalLM, SheafStateModel

__all__ = ["SheafStateConfig", "SheafStateForCausalLM", "SheafStateModel", "__version__", "edges", "simulation"]

__version__ = "0.1.0"

_CLASSES = {
    "SheafStateConfig": "sheafstate.config",
    "SheafStateForCausalLM": "sheafstate.modeling",
    "SheafStateModel": "sheafstate.modeling",
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(importlib.import_module(_CLASSES[name]), name)
    if name in ("edges", "simulation"):
        return importlib.import_module(f"sheafstate.{name}")
    raise AttributeError(f"module 'sheafstate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


watch()
