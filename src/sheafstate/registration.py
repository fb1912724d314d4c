"""Registers the model with transformers' Auto classes as soon as both are there, and imports neither before.

``import sheafstate`` must make ``AutoModelForCausalLM.from_pretrained`` know the model, yet the simulation and every
``--help`` need no PyTorch, whose import takes seconds. So the import of transformers' auto modules is watched: whoever
asks for an Auto class finds the model registered.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["watch"]

CONFIGURATIONS = "transformers.models.auto.configuration_auto"
MODELS = "transformers.models.auto.modeling_auto"


class _Watcher(MetaPathFinder):
    """Calls ``settle`` after each of some modules has been imported."""

    def __init__(self, names: Sequence[str], settle: Callable[[], None]) -> None:
        self.names, self.settle = set(names), settle

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find a watched module; have its loader report when it is done."""
        if fullname not in self.names:
            return None
        self.names.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_settle(module: ModuleType) -> None:
            run(module)
            self.settle()

        spec.loader.exec_module = run_and_settle  # type: ignore[method-assign]
        return spec


def watch() -> None:
    """Register now what can be registered, and the rest when its turn comes."""
    names = [CONFIGURATIONS, MODELS, "sheafstate.config", "sheafstate.modeling"]
    sys.meta_path.insert(0, _Watcher([name for name in names if name not in sys.modules], _settle))
    _settle()


def _settle() -> None:
    """Register what both sides are ready for; a side whose import is under way comes back here when it is done."""
    if _ready(CONFIGURATIONS) and not _under_way("sheafstate.config"):
        from transformers import AutoConfig

        from sheafstate.config import SheafStateConfig

        AutoConfig.register(SheafStateConfig.model_type, SheafStateConfig, exist_ok=True)
    if _ready(MODELS) and not _under_way("sheafstate.modeling"):
        from transformers import AutoModel, AutoModelForCausalLM
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        from sheafstate.modeling import SheafStateConfig, SheafStateForCausalLM, SheafStateModel

        AutoModel.register(SheafStateConfig, SheafStateModel, exist_ok=True)
        AutoModelForCausalLM.register(SheafStateConfig, SheafStateForCausalLM, exist_ok=True)
        # Trainer looks names up here to know that labels are to be shifted when it smooths them itself.
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[SheafStateConfig.model_type] = SheafStateForCausalLM.__name__


_LAST = {
    CONFIGURATIONS: "AutoConfig",
    MODELS: "AutoModelForCausalLM",
    "sheafstate.config": "SheafStateConfig",
    "sheafstate.modeling": "SheafStateForCausalLM",
}
"""What a module has once it can be used."""


def _ready(name: str) -> bool:
    return name in sys.modules and hasattr(sys.modules[name], _LAST[name])


def _under_way(name: str) -> bool:
    return name in sys.modules and not hasattr(sys.modules[name], _LAST[name])
