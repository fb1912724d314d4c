"""Pure functions on tensors: fast paths, each beside a reference twin that is a loop over the equation."""

from contextlib import AbstractContextManager, nullcontext

import torch

from sheafstate.shapes import Tensor

__all__ = ["without_autocast"]


def without_autocast(like: Tensor) -> AbstractContextManager:
    """A context without autocast on a tensor's device; where there is none, entering it would only take time."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
