"""Rows of a synthetic task, drawn as they are asked for: a function of seed and index alone."""

from collections.abc import Callable

import numpy as np
from torch.utils.data import Dataset

from sheafstate.data.synthetic import Examples

__all__ = ["DrawnRows"]

_MOST_ROWS = 10_000_000
"""Seeds of rows lie this far apart for two seeds of a run, so that no two runs share one."""


class DrawnRows(Dataset):
    """``count`` rows; row i is what ``draw`` gives for one row and a seed of its own."""

    def __init__(self, draw: Callable[[int], Examples], count: int, seed: int) -> None:
        self.draw, self.count, self.seed = draw, count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Row ``index``: what is read, and what is to be said at each position (−100 where nothing is)."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        row = self.draw(self.seed * _MOST_ROWS + index)
        return {"input_ids": row.input_ids[0], "targets": row.targets[0]}
