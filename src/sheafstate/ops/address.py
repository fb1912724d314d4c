"""Addresses: locality-sensitive hashing of unit vectors, with a partition of unity on its borders.

z = W h / max(|W h|, 1e-6);  scores = [z R, -z R] in R^K;  the address is the largest score's index (cross-polytope
hashing; Andoni et al., "Practical and Optimal LSH for Angular Distance", 2015). The margin m of the two largest scores
gives u = tanh(16 m), which vanishes on the border between two addresses.
"""

import torch

from sheafstate.ops import cast, wider, without_autocast
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["assign_addresses", "assign_addresses_reference", "unit_vectors"]

SHARPNESS = 16.0


def unit_vectors(x: Float[Tensor, "*batch a"]) -> Float[Tensor, "*batch a"]:
    """x / max(|x|, 1e-6), in float32 or wider."""
    x = cast(x, wider(x.dtype))
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-6)


def assign_addresses_reference(
    z: Float[Tensor, "B M T a"], directions: Float[Tensor, "M a half"]
) -> tuple[Int[Tensor, "B M T"], Float[Tensor, "B M T"]]:
    """Score every direction of every position in a loop; the twin of :func:`assign_addresses`."""
    batch, maps, length, _ = z.shape
    address = torch.zeros(batch, maps, length, dtype=torch.long)
    unity = torch.zeros(batch, maps, length, dtype=z.dtype)
    for b in range(batch):
        for m in range(maps):
            for t in range(length):
                half = [float(z[b, m, t] @ directions[m, :, j]) for j in range(directions.shape[-1])]
                scores = half + [-score for score in half]
                best = max(scores)
                address[b, m, t] = scores.index(best)
                others = scores[: scores.index(best)] + scores[scores.index(best) + 1 :]
                unity[b, m, t] = torch.tanh(torch.tensor(SHARPNESS * (best - max(others)), dtype=z.dtype))
    return address, unity


@torch.no_grad()
def assign_addresses(
    z: Float[Tensor, "B M T a"], directions: Float[Tensor, "M a half"]
) -> tuple[Int[Tensor, "B M T"], Float[Tensor, "B M T"]]:
    """Address of every position in every map, and its partition of unity.

    Args:
        z: unit vectors.
        directions: fixed random directions R of each map; K is twice their number.

    Returns:
        addresses in [0, K), ties to the lowest; u in [0, 1). No gradient flows through either.
    """
    with without_autocast(z):
        half = z @ cast(directions, z.dtype)
        scores = torch.cat([half, -half], -1)
        best, address = scores.max(-1)
        if torch.compiler.is_compiling():  # Inductor, in torch 2.13, loses a scatter that it fuses
            is_best = torch.arange(scores.shape[-1], device=z.device) == address[..., None]
            others = scores.masked_fill(is_best, -torch.inf)
        else:
            others = scores.scatter(-1, address[..., None], -torch.inf)
        second = others.amax(-1)
        return address, torch.tanh(SHARPNESS * (best - second))
