"""Top-1 routing through experts without dropping a token."""

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

from sheafstate.shapes import Float, Int, Tensor

__all__ = ["LinearMap", "routed_swiglu", "routed_swiglu_reference", "swiglu"]

LinearMap = Callable[[Tensor], Tensor]


def swiglu(x: Float[Tensor, "*batch d"], up: LinearMap, down: LinearMap) -> Float[Tensor, "*batch d"]:
    """down (silu(gate x) * (value x)); the first half of what ``up`` gives is the gate's (Shazeer, 2020)."""
    gate, value = up(x).chunk(2, -1)
    return down(functional.silu(gate) * value)


def routed_swiglu_reference(
    x: Float[Tensor, "n d"], expert: Int[Tensor, " n"], experts: Sequence[tuple[LinearMap, LinearMap]]
) -> Float[Tensor, "n d"]:
    """Compute every expert for every token and keep the chosen one's; the twin of :func:`routed_swiglu`.

    Its shapes do not depend on the data, so it also serves where a graph is compiled.
    """
    everything = torch.stack([swiglu(x, up, down) for up, down in experts])
    return everything.gather(0, expert[None, :, None].expand(1, *x.shape))[0]


def routed_swiglu(
    x: Float[Tensor, "n d"], expert: Int[Tensor, " n"], experts: Sequence[tuple[LinearMap, LinearMap]]
) -> Float[Tensor, "n d"]:
    """The chosen expert's SwiGLU of every token: tokens are sorted by expert, each expert runs once on its run.

    Args:
        x: tokens.
        expert: chosen expert of every token, in [0, E).
        experts: the two linear maps of each.
    """
    if len(x) == 1:
        return swiglu(x, *experts[int(expert)])
    order = torch.argsort(expert, stable=True)
    counts = torch.bincount(expert, minlength=len(experts)).tolist()
    runs = x.index_select(0, order).split(counts)
    results = torch.cat([swiglu(run, *maps) for run, maps in zip(runs, experts, strict=True)])
    return torch.empty_like(results).index_copy(0, order, results)
