"""A run that is stopped, once or more, at any step, goes on as if nothing had been."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback

from sheafstate.training import train
from sheafstate.training.model import build_model
from tests.training.conftest import STEPS_OF_AN_EPOCH, StopAt, Witness, build_llama
from tests.variants import examples

from .promises import Mutation, contract
from .small_runs import losses, options, write_page

STEPS = 40
FIGURES = ("train/loss", "train/learning_rate", "train/grad_norm", "eval/nats_per_token", "eval/bits_per_byte")
SHIFT = Mutation(
    "training/callbacks.py",
    "self.rows.set_epoch(int(state.epoch or 0))",
    "self.rows.set_epoch(self.rows.shift and 1)",
    "a resumed run reads the rows of another epoch",
)


class RandomState(TrainerCallback):
    """Draws from torch at every step, as dropout would, and keeps what it drew."""

    def __init__(self) -> None:
        self.drawn: list[float] = []

    def on_step_end(self, args, state, control, **kwargs) -> None:
        self.drawn.append(torch.rand(()).item())


def logged(folder: Path) -> list[tuple[str, int, float]]:
    """What TensorBoard shows of a run, but for what depends on the clock."""
    log = EventAccumulator(str(folder / "logs")).Reload()
    return [(tag, event.step, event.value) for tag in FIGURES for event in log.Scalars(tag)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page"))


def in_parts(page: Path, folder: Path, build, stops: list[int], save_every: int) -> None:
    """Train straight and in parts, and compare all that either did."""
    shared = {"steps": STEPS, "save_every": save_every, "validate_every": 15, "log_every": 3, "keep_checkpoints": 99}
    straight, witness = Witness(build), Witness(build)
    drawn, drawn_in_parts = RandomState(), RandomState()
    whole = train(options(page, folder / "straight", **shared), build=straight, callbacks=[drawn])
    seen: list[list] = []
    for part, stop in enumerate([*stops, STEPS]):
        # a run that is stopped between two saves loses the steps after the last
        kept = stops[part - 1] // save_every * save_every if part else 0
        seen, drawn_in_parts.drawn = seen[:kept], drawn_in_parts.drawn[:kept]
        witness.batches = []
        callbacks = [drawn_in_parts] if stop == STEPS else [drawn_in_parts, StopAt(stop)]
        resumed = train(options(page, folder / "parts", **shared, resume=part > 0), build=witness, callbacks=callbacks)
        seen += witness.batches
        assert len(witness.batches) == stop - kept
    assert seen == straight.batches
    assert len({json.dumps(batch) for batch in seen}) == STEPS, "every epoch places its rows anew"
    assert drawn_in_parts.drawn == drawn.drawn
    assert losses(folder / "straight") == losses(folder / "parts")
    assert logged(folder / "straight") == logged(folder / "parts")
    for before, after in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(before, after)
    for name in whole.metrics.keys() - {"seconds"}:
        assert whole.metrics[name] == resumed.metrics[name]


@contract(19, breaks=SHIFT)
@example(stops=[20], save_every=20)
@example(stops=[2 * STEPS_OF_AN_EPOCH], save_every=2 * STEPS_OF_AN_EPOCH)
@given(
    stops=st.lists(st.integers(1, STEPS - 1), min_size=1, max_size=2, unique=True).map(sorted),
    save_every=st.integers(1, 20),
)
@examples(1)
def test_a_run_in_parts_is_the_straight_run(page: Path, stops: list[int], save_every: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        in_parts(page, Path(folder), build_model, stops, save_every)


@contract(19)
def test_somebody_elses_model_is_resumed_as_well(page: Path, tmp_path: Path) -> None:
    in_parts(page, tmp_path, build_llama, [20], 20)
