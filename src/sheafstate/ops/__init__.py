"""Pure functions on tensors: fast paths, each beside a reference twin that is a loop over the equation."""

from contextlib import AbstractContextManager, nullcontext

import torch

from sheafstate.shapes import Tensor

__all__ = ["cast", "wider", "without_autocast"]


def without_autocast(like: Tensor) -> AbstractContextManager:
    """A context without autocast on a tensor's device; where there is none, entering it would only take time."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in a dtype; where it has it, no call is made, which counts in a step of decoding."""
    return x if x.dtype == dtype else x.to(dtype)


def wider(dtype: torch.dtype) -> torch.dtype:
    """float32, or the dtype itself where it is wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32
