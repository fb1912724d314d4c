"""R: from the output patch to the next-token distribution."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from sheafstate.config import SheafStateConfig
from sheafstate.ops import without_autocast
from sheafstate.ops.product import linear_product
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["Readout", "next_token_loss"]

IGNORED = -100
"""The target of a position that has none."""

GROUP = 256
"""Positions whose logits stay in the processor's cache."""


class Readout(nn.Linear):
    """Logits in float32 or wider from the normalised residual stream; the weight may be the embedding's."""

    def __init__(self, config: SheafStateConfig) -> None:
        super().__init__(config.d_model, config.vocab_size, bias=False)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch V"]:
        """x E^T, never in less than the weight's precision."""
        with without_autocast(x):
            logits = linear_product(x.to(self.weight.dtype), self.weight)
            return logits.to(torch.promote_types(logits.dtype, torch.float32))


def next_token_loss(
    logits: Float[Tensor, "B T V"], targets: Tensor, num_items: Tensor | int | None = None
) -> Float[Tensor, ""]:
    """Negative log-likelihood in nats of targets (B, T), -100 where there is none; the mean, or sum / ``num_items``."""
    flat, wanted = logits.flatten(0, 1), targets.flatten()
    if torch.compiler.is_compiling():
        total = functional.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="sum")
    else:
        total = _SummedLoss.apply(flat, wanted)
    count = (targets != IGNORED).sum().clamp(min=1) if num_items is None else num_items
    return total / count


class _SummedLoss(torch.autograd.Function):
    """Summed cross-entropy with one pass over the logits forward and one backward; torch's own makes six."""

    @staticmethod
    def forward(ctx: Any, logits: Float[Tensor, "n V"], targets: Int[Tensor, " n"]) -> Float[Tensor, ""]:
        counted = targets != IGNORED
        wanted = torch.where(counted, targets, 0)[:, None]
        highest = torch.cat([part.amax(1, keepdim=True) for part in logits.split(GROUP)])
        # apart from the largest logit, which may be so large that their sum would lose the digits of the smaller one
        pairs = zip(logits.split(GROUP), highest.split(GROUP), strict=True)
        normaliser = torch.cat([(part - top).exp_().sum(1, keepdim=True).log_() for part, top in pairs])
        ctx.save_for_backward(logits, highest, normaliser, wanted, counted)
        losses = normaliser - (logits.gather(1, wanted) - highest)
        return torch.where(counted, losses[:, 0], 0.0).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, ""]) -> tuple[Float[Tensor, "n V"], None]:
        logits, highest, normaliser, wanted, counted = ctx.saved_tensors
        slope = torch.where(counted, gradient, 0.0)[:, None]
        result = torch.empty_like(logits)
        groups = (result, logits, highest, normaliser, slope)
        for part, scores, top, size, weight in zip(*(tensor.split(GROUP) for tensor in groups), strict=True):
            torch.sub(scores, top, out=part).sub_(size).exp_().mul_(weight)
        return result.scatter_add_(1, wanted, -slope), None
