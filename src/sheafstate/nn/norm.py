"""The normalisation before the parts of a layer, and before the readout."""

from torch import nn

from sheafstate.ops.norm import rms_norm
from sheafstate.shapes import Float, Tensor

__all__ = ["RMSNorm"]


class RMSNorm(nn.RMSNorm):
    """``nn.RMSNorm``, computed by :func:`~sheafstate.ops.norm.rms_norm`.

    Args:
        width: of the vectors.
        eps: added to the mean square.
    """

    eps: float

    def __init__(self, width: int, eps: float) -> None:
        super().__init__(width, eps)

    def forward(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch D"]:
        """Normalise every vector."""
        return rms_norm(x, self.weight, self.eps)
