"""Sheaf-State language models: a learned sparse site of typed patches instead of the complete graph of tokens.

Importing this package registers the model with transformers' Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from sheafstate import edges, simulation
from sheafstate.config import SheafStateConfig
from sheafstate.modeling import SheafStateForCausalLM, SheafStateModel

__all__ = ["SheafStateConfig", "SheafStateForCausalLM", "SheafStateModel", "__version__", "edges", "simulation"]

__version__ = "0.1.0"

AutoConfig.register(SheafStateConfig.model_type, SheafStateConfig, exist_ok=True)
AutoModel.register(SheafStateConfig, SheafStateModel, exist_ok=True)
AutoModelForCausalLM.register(SheafStateConfig, SheafStateForCausalLM, exist_ok=True)
# Trainer looks names up here to know that labels are to be shifted when it smooths them itself.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[SheafStateConfig.model_type] = SheafStateForCausalLM.__name__
