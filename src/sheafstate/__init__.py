"""Sheaf-State language models: a learned sparse site of typed patches instead of the complete graph of tokens.

Importing this package registers the model with transformers' Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from sheafstate import edges, simulation
from sheafstate.config import SheafStateConfig
from sheafstate.modeling import SheafStateForCausalLM, SheafStateModel

__all__ = ["SheafStateConfig", "SheafStateForCausalLM", "SheafStateModel", "__version__", "edges", "simulation"]

__version__ = "0.1.0"

AutoConfig.register(SheafStateConfig.model_type, SheafStateConfig, exist_ok=True)
AutoModel.register(SheafStateConfig, SheafStateModel, exist_ok=True)
AutoModelForCausalLM.register(SheafStateConfig, SheafStateForCausalLM, exist_ok=True)
