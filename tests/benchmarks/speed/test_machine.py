import time

import pytest
import torch

from sheafstate.benchmarks.speed import machine


def test_the_rates_of_a_machine_are_measured_at_a_side_that_it_multiplies_in_little_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides: list[int] = []

    def slow_in_bfloat16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype is torch.bfloat16:
            sides.append(len(a))
            time.sleep(machine.ENOUGH if len(a) >= 512 else 0.0)
        return a

    monkeypatch.setattr(torch, "matmul", slow_in_bfloat16)
    monkeypatch.setattr(machine, "linear_product", slow_in_bfloat16)
    monkeypatch.setattr(machine, "COPIED", 2**20)
    measured = machine.measure_machine(repeats=1)
    assert set(sides) == {256, 512}
    assert measured.gflops > measured.gflops_bf16 == pytest.approx(2 * 512**3 / 1e9 / machine.ENOUGH, rel=0.2)
