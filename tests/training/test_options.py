"""Impossible options are refused before anything is read, in a sentence that names the value."""

import json

import pytest

from sheafstate.errors import InputError
from sheafstate.training import TrainingOptions
from sheafstate.training.arguments import training_arguments

BAD = {
    "steps": [0, -1, 1.5, True, "4", None],
    "batch_size": [0],
    "context": [1, 0],
    "accumulate": [0],
    "log_every": [0],
    "save_every": [0],
    "keep_checkpoints": [0],
    "validate_every": [0],
    "threads": [0],
    "seed": [-1],
    "learning_rate": [0, -1e-3, float("nan"), float("inf"), "fast"],
    "max_grad_norm": [0],
    "weight_decay": [-0.1],
    "beta2": [1, -0.1],
    "validation_share": [1, -0.5],
    "warmup": [1, -0.1],
    "decay": [1],
    "schedule": ["linear"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_impossible_values_are_refused(name: str, value) -> None:
    with pytest.raises(InputError, match=name) as caught:
        TrainingOptions(data="x", out="y", **{name: value})
    assert repr(value) in str(caught.value)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="resumed or overwritten"):
        TrainingOptions(data="x", out="y", resume=True, overwrite=True)
    with pytest.raises(InputError, match=r"batch_size \(6\) must be a multiple of accumulate \(4\)"):
        TrainingOptions(data="x", out="y", batch_size=6, accumulate=4)


def test_the_optimiser_s_betas_reach_the_trainer(tmp_path) -> None:
    arguments = training_arguments(TrainingOptions(data="x", out=tmp_path, beta2=0.99))
    assert (arguments.adam_beta1, arguments.adam_beta2) == (0.9, 0.99)


def test_a_record_is_json_and_makes_the_same_options(tmp_path) -> None:
    options = TrainingOptions(data=tmp_path / "text", out=tmp_path, overrides={"heads": {"local": 2}}, steps=7)
    again = TrainingOptions(**json.loads(json.dumps(options.record())))
    assert again.record() == options.record()


def test_what_a_resumed_run_may_change_is_not_fixed() -> None:
    fixed = TrainingOptions(data="x", out="y").fixed()
    assert {"context", "batch_size", "seed", "preset", "overrides", "learning_rate", "tokenizer"} <= fixed.keys()
    assert not {"out", "data", "steps", "resume", "save_every", "threads"} & fixed.keys()
