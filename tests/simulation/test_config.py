"""Rates and budgets refuse what makes no sense, and presets can be changed value by value."""

from dataclasses import fields

import pytest

from sheafstate.errors import InputError
from sheafstate.simulation import PRESETS, Budget, Rates, SimulationConfig, configure

BAD_RATES = {
    "local_links": [-1, 4, 1.5, True],
    "local_span": [0, 1, 17, 3.0],
    "preamble": [-1, 3],
    "instructions": [-1, 65],
    "instruction_references": [-0.1, 1.1, float("nan")],
    "topic_anchors": [-0.1, 0.99],
    "live_topics": [0],
    "topic_references": [float("inf")],
    "mentions": [0.96],
    "entities": [0, 2.5],
    "entity_skew": [-0.1, 11, float("nan")],
    "recurrence_depth": [0],
    "recurrence_decay": [-0.5, 1.5],
    "hidden_marks": [-0.1, 2],
    "false_marks": [-0.1, 2],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in BAD_RATES.items() for value in bad])
def test_bad_rates(name: str, value: float) -> None:
    with pytest.raises(InputError, match=r"must be .*, got "):
        Rates(**{name: value})


def test_every_rate_is_refused_something() -> None:
    assert set(BAD_RATES) == {f.name for f in fields(Rates)}


@pytest.mark.parametrize("name", [f.name for f in fields(Budget)])
def test_bad_budgets(name: str) -> None:
    for value in (-1, 1.5):
        with pytest.raises(InputError, match=f"{name} must be an integer of 0 or more, got {value}"):
            Budget(**{name: value})
    with pytest.raises(InputError, match="baseline_window must be an integer of 0 or more"):
        SimulationConfig(baseline_window=-1)


def test_overrides_from_text_and_numbers() -> None:
    config = configure("deep", {"mentions": "0.05", "entities": 3, "recent_mentions": "2", "baseline_window": "16"})
    assert (config.rates.mentions, config.rates.entities) == (0.05, 3)
    assert config.rates.live_topics == PRESETS["deep"].rates.live_topics == 8
    assert (config.budget.recent_mentions, config.budget.recent_anchors) == (2, 8)
    assert config.baseline_window == 16
    assert configure() == SimulationConfig() == PRESETS["default"]


BAD_OVERRIDES = {
    "no such name": (
        {"mention": "0.1"},
        "no simulation parameter 'mention'; choose from local_links, .*baseline_window",
    ),
    "no number": ({"mentions": "many"}, "mentions must be a number, got 'many'"),
    "no integer": ({"entities": "2.5"}, "entities must be an integer, got '2.5'"),
    "no integer for the window": ({"baseline_window": "wide"}, "baseline_window must be an integer, got 'wide'"),
    "out of range": ({"mentions": "2"}, "mentions must be a share from 0 to 1, got 2.0"),
}


@pytest.mark.parametrize(("overrides", "message"), BAD_OVERRIDES.values(), ids=BAD_OVERRIDES)
def test_bad_overrides(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure("default", overrides)


def test_an_unknown_preset() -> None:
    with pytest.raises(InputError, match="no simulation preset 'huge'; choose from default, deep, starved, noisy"):
        configure("huge")
