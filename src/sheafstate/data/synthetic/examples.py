"""What every task hands out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Examples"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a task, each array of shape ``(rows, length)``.

    Attributes:
        input_ids: int64, what a model reads.
        targets: int64, aligned with the position: what is to be predicted there; −100 where nothing is.
        kinds: int8, which relation decides the target, −1 where there is none; ``None`` for a task without kinds.
    """

    input_ids: NDArray[np.int64]
    targets: NDArray[np.int64]
    kinds: NDArray[np.int8] | None = None
