"""Linear maps that can be low-bit morphisms: the category QuantVect of the hypothesis."""

import math

import torch
from torch import nn
from torch.nn import functional

from sheafstate.ops.quantize import Quantization, fake_quantize, fake_quantize_activation
from sheafstate.shapes import Float, Tensor

__all__ = ["QuantLinear", "quantize_inputs_and_weights"]


def quantize_inputs_and_weights(x: Tensor, mode: Quantization, *weights: Tensor) -> tuple[Tensor, ...]:
    """Fake-quantised activations and weights, or the arguments themselves where nothing is quantised."""
    if mode is Quantization.NONE:
        return x, *weights
    return fake_quantize_activation(x), *(fake_quantize(weight, mode) for weight in weights)


class QuantLinear(nn.Linear):
    """``nn.Linear`` without bias whose weights and inputs are quantised as they are used.

    It stays an ``nn.Linear``, so that libraries that look for linear layers find it. The stored weight is the full
    one; training sees the quantised one through a straight-through gradient.

    Args:
        in_features, out_features: widths.
        quantization: how weights are quantised.
        std: standard deviation at initialisation; 1/sqrt(in_features) if ``None``.
    """

    def __init__(
        self, in_features: int, out_features: int, quantization: str = "none", std: float | None = None
    ) -> None:
        self.quantization = Quantization(quantization)
        self.std = 1 / math.sqrt(in_features) if std is None else std
        super().__init__(in_features, out_features, bias=False)

    def initial_values(self) -> dict[str, Tensor]:
        """A normal weight."""
        return {"weight": torch.randn(self.weight.shape) * self.std}

    def forward(self, x: Float[Tensor, "*batch in"]) -> Float[Tensor, "*batch out"]:
        """x W^T with both quantised."""
        return functional.linear(*quantize_inputs_and_weights(x, self.quantization, self.weight))
