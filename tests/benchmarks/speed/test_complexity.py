"""Cost is linear in the context: works measured in turns, with margins that a busy machine does not use up."""

from collections.abc import Iterator

import pytest
import torch

from sheafstate.benchmarks.speed.sides import make_side
from sheafstate.benchmarks.speed.turns import take_turns
from sheafstate.benchmarks.speed.works import Kind, Work, prepare

SHORT, LONG = 2048, 8192
LINEAR = 4.6
"""Most that four times the context may cost: 4 is linear, 16 quadratic."""
ATTEMPTS = 3


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _growth(side: str, repeats: int = 5) -> float:
    model = make_side(side, "tiny")
    calls = {str(n): prepare(model, Work(Kind.PREFILL, n)) for n in (SHORT, LONG)}
    timings = take_turns(calls, repeats, warmups=1)
    return timings[str(LONG)].median / timings[str(SHORT)].median


def test_reading_four_times_as_much_takes_four_times_as_long() -> None:
    """Noise can only be in the way of it: one of a few attempts must show it."""
    assert any(_growth("sheaf-state") <= LINEAR for _ in range(ATTEMPTS))


def test_the_measure_tells_linear_from_quadratic() -> None:
    """The complete site, whose heads read every earlier position, is caught by the same limit."""
    assert any(_growth("complete", repeats=2) > LINEAR for _ in range(ATTEMPTS))
