"""The benchmark of packed weights runs, and its figures are of the right order."""

import torch

from sheafstate.benchmarks.low_bit import MODES, measure


def test_every_mode_is_measured() -> None:
    with torch.no_grad():
        figures = {each.mode: each for each in measure("tiny", threads=1, steps=1, length=8, repeats=1)}
    assert tuple(figures) == MODES
    for each in figures.values():
        assert 1 <= each.file_bytes / each.formula_bytes < 1.06
        assert min(each.decode_ms, each.prefill_ms) > 0
        assert 0 < each.resident_mib <= each.peak_mib
    sizes = [figures[mode].file_bytes for mode in MODES]
    assert sizes == sorted(sizes, reverse=True)
