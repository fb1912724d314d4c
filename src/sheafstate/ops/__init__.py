"""Pure functions on tensors: fast paths, each beside a reference twin that is a loop over the equation."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from sheafstate.shapes import Tensor

__all__ = ["cast", "constant", "made_constant", "made_once", "wider", "without_autocast"]

P = ParamSpec("P")
R = TypeVar("R")


def without_autocast(like: Tensor) -> AbstractContextManager:
    """A context without autocast on a tensor's device; where there is none, entering it would only take time."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in a dtype; where it has it, no call is made, which counts in a step of decoding."""
    return x if x.dtype == dtype else x.to(dtype)


def made_once(function: Callable[P, R]) -> Callable[P, R]:
    """A function of sizes, dtypes and devices whose tensors are kept; a compiled graph runs it, as sizes may vary."""
    kept = _kept(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs) if torch.compiler.is_compiling() else kept(*args, **kwargs)

    return call


def made_constant(function: Callable[P, R]) -> Callable[P, R]:
    """:func:`made_once` for sizes that a configuration fixes: the tensors are constants of a compiled graph.

    They are kept while a graph is compiled too: two tensors made by one call in two layers would be two constants of
    one name, which a graph refuses.
    """
    return torch.compiler.assume_constant_result(_kept(function))


def _kept(function: Callable[P, R]) -> Callable[P, R]:
    kept: Any = lru_cache(maxsize=64)(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if is_in_torch_dispatch_mode():  # tensors may be fakes there, which nobody else may be given
            return function(*args, **kwargs)
        made: R = kept(*args, **kwargs)
        return made

    named: Any = call  # a compiled graph names a constant by the code that made it
    named.__code__ = named.__code__.replace(co_name=function.__name__)
    return call


@made_constant
def constant(value: float | int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor, made once."""
    return torch.tensor(value, dtype=dtype, device=device)


def wider(dtype: torch.dtype) -> torch.dtype:
    """float32, or the dtype itself where it is wider."""
    return torch.float64 if dtype == torch.float64 else torch.float32
