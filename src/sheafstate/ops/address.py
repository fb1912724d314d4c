"""Addresses: locality-sensitive hashing of unit vectors, with a partition of unity on its borders.

z = W h / max(|W h|, 1e-6);  scores = [z R, -z R] in R^K;  the address is the largest score's index (cross-polytope
hashing; Andoni et al., "Practical and Optimal LSH for Angular Distance", 2015). The margin m of the two largest scores
gives u = tanh(16 m), which vanishes on the border between two addresses.
"""

import torch

from sheafstate.ops import cast, made_constant, wider, without_autocast
from sheafstate.shapes import Float, Int, Tensor

__all__ = ["assign_addresses", "assign_addresses_reference", "random_directions", "unit_vectors"]

SHARPNESS = 16.0


def random_directions(maps: int, width: int, count: int) -> Float[Tensor, "M a half"]:
    """Directions of length sqrt(width): at right angles as many as there is room for, then as many more, at random.

    So every address gets its share of evenly spread vectors. Among directions drawn independently, long ones get
    several times what short ones get, and their slots are overwritten the sooner (docs/experiments.md).

    Args:
        maps: M, each with directions of its own.
        width: a, of the unit vectors.
        count: directions of a map, half its addresses.

    Returns:
        the directions, in the default dtype, in float32 or wider.
    """
    turns, dtype = [], wider(torch.get_default_dtype())
    for _ in range(-(-count // width)):
        q, r = torch.linalg.qr(torch.randn(maps, width, width, dtype=dtype))
        turns.append(q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None])  # so that all rotations are equally likely
    return torch.cat(turns, -1)[..., :count].contiguous() * width**0.5


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
    if z.requires_grad or directions.requires_grad:
        z, directions = z.detach(), directions.detach()
    directions = cast(directions, z.dtype)
    if z.shape[-2] > 1 or torch.compiler.is_compiling():
        with without_autocast(z):
            half = z @ directions
        address, margin = _largest(half)
    else:  # few scores: as few calls as possible, and no product that would wake other threads
        half = (z.transpose(-1, -2) * directions).sum(-2, keepdim=True)
        scores = torch.cat([half, -half], -1)
        address, (best, second) = scores.argmax(-1), scores.topk(2).values.unbind(-1)
        margin = best - second
    return address, torch.tanh(SHARPNESS * margin)


def _largest(half: Float[Tensor, "*batch half"]) -> tuple[Int[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """Index of the largest of [half, -half], and by how much it is the largest: without a search, which is slow."""
    count = half.shape[-1]
    size = half.abs()
    best = size.amax(-1)
    # where the largest size stands, 2 n less its index among the scores; elsewhere 0
    behind = torch.where(half < 0, *_places(count, half.dtype, half.device)) * (size == best[..., None])
    place = behind.amax(-1)
    others = size.masked_fill(behind == place[..., None], -torch.inf)
    second = torch.maximum(others.amax(-1), -best)
    return (2 * count - place).long(), best - second


@made_constant
def _places(
    count: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, " half"], Float[Tensor, " half"]]:
    """2 n less the index among [half, -half], of the second half and of the first."""
    index = torch.arange(count, dtype=dtype, device=device)
    return count - index, 2 * count - index
