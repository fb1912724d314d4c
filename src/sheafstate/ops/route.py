"""Top-1 routing through stacked SwiGLU experts without dropping a token."""

from collections.abc import Callable

import torch
from torch.nn import functional

from sheafstate.shapes import Float, Int, Tensor

__all__ = ["routed_swiglu", "routed_swiglu_reference", "swiglu"]


def swiglu(
    x: Float[Tensor, "*batch d"],
    up: Float[Tensor, "two_f d"],
    down: Float[Tensor, "d f"],
    between: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "*batch d"]:
    """down (silu(gate x) * (value x)); the rows of ``up`` are the gate's, then the value's (Shazeer, 2020).

    ``between`` is applied to what ``down`` takes in: low-bit maps quantise it.
    """
    gate, value = functional.linear(x, up).chunk(2, -1)
    hidden = functional.silu(gate) * value
    return functional.linear(hidden if between is None else between(hidden), down)


def routed_swiglu_reference(
    x: Float[Tensor, "n d"],
    expert: Int[Tensor, " n"],
    up: Float[Tensor, "E two_f d"],
    down: Float[Tensor, "E d f"],
    between: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "n d"]:
    """Compute every expert for every token and keep the chosen one's; the twin of :func:`routed_swiglu`.

    Its shapes do not depend on the data, so it also serves where a graph is compiled.
    """
    everything = torch.stack([swiglu(x, up[e], down[e], between) for e in range(up.shape[0])])
    return everything.gather(0, expert[None, :, None].expand(1, *x.shape))[0]


def routed_swiglu(
    x: Float[Tensor, "n d"],
    expert: Int[Tensor, " n"],
    up: Float[Tensor, "E two_f d"],
    down: Float[Tensor, "E d f"],
    between: Callable[[Tensor], Tensor] | None = None,
) -> Float[Tensor, "n d"]:
    """The chosen expert's SwiGLU of every token: tokens are sorted by expert, each expert runs once on its run.

    Args:
        x: tokens.
        expert: chosen expert of every token, in [0, E).
        up, down: stacked weights.
        between: applied to what ``down`` takes in.
    """
    order = torch.argsort(expert, stable=True)
    counts = torch.bincount(expert, minlength=up.shape[0]).tolist()
    runs = x.index_select(0, order).split(counts)
    results = torch.cat([swiglu(run, up[e], down[e], between) for e, run in enumerate(runs)])
    return torch.empty_like(results).index_copy(0, order, results)
