"""``sheafstate estimate``: its figures are those of accounting.py, and people can read its tables."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateConfig, accounting
from sheafstate.cli.estimate_training import DEVICE_NAMES
from sheafstate.cli.units import in_bytes, short
from sheafstate.config import PRESETS
from sheafstate.training.cost import DEVICES, Device, training_cost


@pytest.fixture
def estimated(printed):
    return lambda *arguments: json.loads(printed("estimate", *arguments, "--json"))


def test_figures_are_those_of_the_formulas(estimated) -> None:
    contexts = (1, 300, 70_000)
    asked = [word for preset in PRESETS for word in ("--preset", preset)]
    asked += [word for context in contexts for word in ("--context", str(context))]
    record = estimated(*asked, "--dtype", "bfloat16")
    assert [model["preset"] for model in record["models"]] == list(PRESETS)
    for model in record["models"]:
        sheaf = SheafStateConfig.from_preset(model["preset"])
        dense = SheafStateConfig.from_preset(model["preset"], site="complete", gluing="plain", output_gate=False)
        assert list(model["sites"]) == ["sheaf", "dense"]
        for config, figures in zip((sheaf, dense), model["sites"].values(), strict=True):
            counted = accounting.parameters(config)
            assert figures["parameters"]["total"] == counted.total
            assert figures["parameters"]["non_embedding"] == counted.total - counted.embedding
            for context, costs in zip(contexts, figures["costs"], strict=True):
                assert costs == vars(accounting.cost(config, context, dtype_bytes=2))


def test_state_is_constant_and_the_dense_one_is_not(estimated) -> None:
    sites = estimated("-n", "1000", "-n", "100000")["models"][0]["sites"]
    short_text, long_text = sites["sheaf"]["costs"]
    assert short_text["state_bytes"] == long_text["state_bytes"]
    short_text, long_text = sites["dense"]["costs"]
    assert long_text["state_bytes"] > 90 * short_text["state_bytes"]


def test_settings_hold_for_both_models(estimated) -> None:
    model = estimated("--set", "vocab_size=50257", "--set", "heads.local=7", "--set", "site=window")["models"][0]
    tables = [figures["parameters"]["embedding"] for figures in model["sites"].values()]
    assert list(model["sites"]) == ["window", "dense"]
    assert tables == [50257 * 128] * 2
    assert model["heads"] == {"local": sum(SheafStateConfig.from_preset("tiny").heads.values()) + 2}


@pytest.mark.parametrize("preset", PRESETS)
def test_tables_fit_a_terminal(preset: str, printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed("estimate", "--preset", preset, "--context", 1, "--context", 1_048_576)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert f"{accounting.parameters(SheafStateConfig.from_preset(preset)).total:,}" in shown
    assert "1,048,576" in shown


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--preset", "huge"], "huge"),
        (["--dtype", "int7"], "int7"),
        (["--set", "widow=3"], "window"),
        (["--set", "window=0"], "window"),
        (["--set", "window"], "key=value"),
        (["--context", "0"], "not 0"),
        (["--preset", "7B"], "--size"),
        (["--size", "large"], "size"),
        (["--size", "7T0"], "size"),
        (["--size", "1e30"], "depth"),
        (["--train", "--device", "abacus"], "abacus"),
        (["--train", "--device", "1,2"], "1,2"),
        (["--train", "--devices", "0"], "not 0"),
        (["--train", "--utilization", "2"], "not 2"),
        (["--train", "--set", "site=complete"], "complete"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], named: str, refused) -> None:
    assert named in refused("estimate", *arguments)


def test_training_is_what_the_formulas_say(estimated) -> None:
    asked = ("--train", "--size", "1M", "--preset", "tiny", "-n", "512", "-n", "1048576", "--device", "100,10,20")
    record = estimated(*asked, "--devices", "4", "--rows", "2", "--checkpointing")
    assert record["contexts"] == [512, 1_048_576]
    assert list(record["models"]) == ["tiny", "1M"]
    expected = [
        training_cost(SheafStateConfig.from_preset("tiny"), n, Device(100, 10, 20), 4, 2, checkpointing=True)
        for n in record["contexts"]
    ]
    assert record["models"]["tiny"] == [vars(costs) for costs in expected]


def test_training_fits_a_terminal(printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed("estimate", "--train", "--size", "7B", "-n", 8192, "-n", 1_048_576, "--devices", 4096)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_device_names_are_those_with_figures() -> None:
    assert tuple(DEVICES) == DEVICE_NAMES


PREFIXES = {"": 1, **{prefix: 1000**rank for rank, prefix in enumerate("kMGTPE", 1)}}
UNITS = {"B": 1, **{f"{prefix}iB": 1024**rank for rank, prefix in enumerate("KMGTP", 1)}}


@given(st.floats(0.01, 1e17, allow_nan=False) | st.integers(0, 10**17))
def test_short_figures_say_the_figure(value: float) -> None:
    for text, units in ((short(value), PREFIXES), (in_bytes(value), UNITS)):
        figure, _, unit = text.partition(" ")
        assert math.isclose(float(figure.replace(",", "")) * units[unit], value, rel_tol=6e-3, abs_tol=6e-3)
        assert len(figure) <= 5


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1.00 k"), (999_500, "1.00 M"), (1_536_000, "1.54 M"), (0.5, "0.50")],
)
def test_short_figures(value: float, text: str) -> None:
    assert short(value) == text


def test_bytes() -> None:
    assert [in_bytes(n) for n in (512, 1536, 10 * 2**20)] == ["512 B", "1.50 KiB", "10.0 MiB"]
