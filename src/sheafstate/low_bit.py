"""From a model with full weights to one whose linear maps exist in their packed low-bit form alone."""

import copy
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import nn
from transformers import PreTrainedModel

from sheafstate.config import QUANTIZATIONS
from sheafstate.errors import InputError
from sheafstate.ops.quantize import Quantization
from sheafstate.shapes import Tensor

__all__ = ["pack_model"]

Model = TypeVar("Model", bound=PreTrainedModel)


@runtime_checkable
class Packable(Protocol):
    """A module with weights that have a packed form."""

    def packed_values(self, mode: Quantization) -> dict[str, dict[str, Tensor]]:
        """Weights that have a packed form, by name, and the tensors that the packed module has in their place."""


@torch.no_grad()
def pack_model(model: Model, quantization: str | None = None) -> Model:
    """A copy of a Sheaf-State model with packed weights; the model itself stays as it is.

    The copy computes what the model computes with ``quantization`` in its configuration, up to the rounding of sums.

    Args:
        model: a model with full weights.
        quantization: ``int8``, ``int4`` or ``ternary``; by default what the model was trained with.

    Raises:
        InputError: the model is packed already, or neither it nor the caller says how to quantise.
    """
    mode = model.config.quantization if quantization is None else quantization
    allowed = [name for name in QUANTIZATIONS if name != "none"]
    if model.config.packed_weights:
        raise InputError(f"the weights are packed already, as {model.config.quantization}")
    if mode not in allowed:
        raise InputError(f"quantization must be one of {', '.join(allowed)} for packed weights, not {mode!r}")
    config = copy.deepcopy(model.config)
    config.quantization, config.packed_weights = mode, True
    with torch.device("meta"):
        packed = type(model)(config)
    packed.load_state_dict(_packed_state(model, Quantization(mode)), strict=True, assign=True)
    packed.tie_weights()
    if getattr(model, "generation_config", None) is not None:
        packed.generation_config = copy.deepcopy(model.generation_config)
    return packed.train(model.training)


def _packed_state(model: nn.Module, mode: Quantization) -> dict[str, Tensor]:
    """The state of the packed model: new tensors for what is packed, copies of all else."""
    state: dict[str, Tensor] = dict(model.state_dict())
    packed: dict[str, Tensor] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, Packable):
            for name, values in module.packed_values(mode).items():
                del state[f"{prefix}.{name}"]
                packed |= {f"{prefix}.{part}": value for part, value in values.items()}
    return {name: value.clone() for name, value in state.items()} | packed
