"""The mean cross-entropy of a linear readout, without the logits of all positions at once.

With 4,096 positions and as many tokens the logits, their softmax and its gradient are 64 MB each, and a dozen passes
over them take more time than the products. A few hundred positions at a time stay in the cache; their gradients are
computed along with the loss, so that nothing of the size of the logits is kept.
"""

from typing import Any

import torch

from sheafstate.ops.product import linear_product, transposed_product
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["readout_loss"]

POSITIONS = 256


def readout_loss(
    x: Float[Tensor, "n D"], weight: Float[Tensor, "V D"], targets: Int[Tensor, " n"]
) -> Float[Tensor, ""]:
    """The mean over positions of -log softmax(weight x)[target], in the weight's type inside autocast too.

    Args:
        x: what the readout reads, at the positions that have a target.
        weight: of the readout; one row a token.
        targets: the token that each position must predict.
    """
    with torch.autocast(x.device.type, enabled=False):
        loss: Tensor = _ReadoutLoss.apply(x.to(weight.dtype), weight, targets)
        return loss


class _ReadoutLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        to_x, to_weight, total = torch.empty_like(x), torch.zeros_like(weight), x.new_zeros((), dtype=torch.float64)
        for begin in range(0, len(targets), POSITIONS):
            group = slice(begin, begin + POSITIONS)
            part, wanted = x[group], targets[group, None]
            scores = linear_product(part, weight)
            scores -= scores.amax(1, keepdim=True)
            chosen = scores.gather(1, wanted)[:, 0]
            sums = scores.exp_().sum(1, keepdim=True)
            total += (sums.log()[:, 0] - chosen).sum()
            scores /= sums
            scores.scatter_add_(1, wanted, scores.new_full(wanted.shape, -1.0))
            to_x[group] = transposed_product(scores, weight)
            to_weight.addmm_(scores.T, part)
        ctx.save_for_backward(to_x, to_weight)
        ctx.count = len(targets)
        return (total / len(targets)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        to_x, to_weight = ctx.saved_tensors
        share = gradient / ctx.count
        return to_x * share, to_weight * share, None
