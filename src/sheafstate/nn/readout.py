"""R: from the output patch to the next-token distribution."""

import torch
from torch import nn
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.shapes import Float, Tensor

__all__ = ["Readout", "next_token_loss"]


class Readout(nn.Linear):
    """Logits in float32 or wider from the normalised residual stream; the weight may be the embedding's."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__(config.d_model, config.vocab_size, bias=False)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        """x E^T, never in less than the weight's precision."""
        with torch.autocast(x.device.type, enabled=False):
            logits = super().forward(x.to(self.weight.dtype))
            return logits.to(torch.promote_types(logits.dtype, torch.float32))


def next_token_loss(
    logits: Float[Tensor, "B T V"], targets: Tensor, num_items: Tensor | int | None = None
) -> Float[Tensor, ""]:
    """Negative log-likelihood in nats of targets (B, T), -100 where there is none; the mean, or sum / ``num_items``."""
    total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    count = (targets != -100).sum().clamp(min=1) if num_items is None else num_items
    return total / count
