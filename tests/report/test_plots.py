"""The figures show the numbers of the records."""

import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from sheafstate.errors import InputError
from sheafstate.report import plots, schema
from sheafstate.report.style import ROLES, site_colour, type_colour

from .conftest import LENGTHS


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_loss_is_drawn_over_tokens(run: Path) -> None:
    history = schema.read_history(run / "history.jsonl")
    axes = plots.draw_loss(history, {"another": 1.88}).axes[0]
    raw, _smooth, validation, reference = axes.lines
    np.testing.assert_allclose(raw.get_xdata(), [100 * step for step in range(1, 21)])
    np.testing.assert_allclose(raw.get_ydata(), [4.0 - step / 10 for step in range(1, 21)])
    np.testing.assert_allclose(validation.get_xdata(), [1000, 2000])
    assert reference.get_ydata() == [1.88, 1.88]
    assert texts(axes.figure) == ["2.100", "another: 1.88"]
    low, high = axes.get_ylim()
    assert low < 1.88 < 3.9 < high


def test_a_spike_does_not_flatten_the_curve() -> None:
    losses = [2.0 + 0.001 * i for i in range(1000)]
    losses[500] = 1e6
    history = schema.History(tuple(schema.TrainPoint(i, i, loss) for i, loss in enumerate(losses)), ())
    assert plots.draw_loss(history).axes[0].get_ylim()[1] < 10


def test_gaps_are_left_where_the_loss_is_not_finite() -> None:
    points = [schema.TrainPoint(i, i, loss) for i, loss in enumerate([3.0, math.nan, math.inf, 2.0])]
    validation = (schema.ValidationPoint(3, math.nan),)
    axes = plots.draw_loss(schema.History(tuple(points), validation)).axes[0]
    assert all(math.isfinite(limit) for limit in axes.get_ylim())


@pytest.mark.parametrize("losses", [[], [math.nan, math.nan]])
def test_a_history_without_losses_is_refused(losses: list[float]) -> None:
    history = schema.History(tuple(schema.TrainPoint(i, i, loss) for i, loss in enumerate(losses)), ())
    with pytest.raises(InputError, match="no training loss"):
        plots.draw_loss(history)


def test_one_point_is_a_history() -> None:
    assert plots.draw_loss(schema.History((schema.TrainPoint(1, 10, 3.0),), ())).axes


def test_smoothing_keeps_a_line_and_ends() -> None:
    line = np.linspace(5.0, 1.0, 200)
    np.testing.assert_allclose(plots.smoothed(line), line, atol=1e-12)


def test_smoothing_averages_a_window() -> None:
    values = np.array([0.0, 3.0, 0.0, np.nan, 0.0])
    np.testing.assert_allclose(plots.smoothed(values, share=0.4), [0.0, 1.0, 1.5, 0.0, 0.0])
    assert np.isnan(plots.smoothed(np.full(3, np.nan))).all()


def test_exponents_are_those_of_the_powers(run: Path) -> None:
    scaling = schema.read_simulation(run / "simulation.json").scaling
    fitted = plots.exponents(scaling)
    assert list(fitted) == ["true", "dense", "window", "sheaf"]
    assert list(fitted.values()) == pytest.approx([1.0, 2.0, 1.0, 1.0], abs=1e-9)


def test_scaling_draws_every_site_in_its_colour(run: Path) -> None:
    scaling = schema.read_simulation(run / "simulation.json").scaling
    axes = plots.draw_scaling(scaling).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    dense = axes.lines[1]
    assert list(dense.get_xdata()) == list(LENGTHS)
    assert list(dense.get_ydata()) == [n * n // 2 for n in LENGTHS]
    assert [line.get_color() for line in axes.lines[1:]] == [site_colour(s) for s in ("dense", "window", "sheaf")]
    assert "dense edges, exponent 2.00" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_one_length_has_no_scaling(run: Path) -> None:
    simulation = schema.read_simulation(run / "simulation.json")
    with pytest.raises(InputError, match="at least two lengths"):
        plots.draw_scaling([simulation.main])


def test_bars_are_the_shares(run: Path) -> None:
    figure = plots.draw_coverage_and_waste(schema.read_simulation(run / "simulation.json").main)
    coverage, waste = ([bar.get_width() for bar in axes.patches] for axes in figure.axes)
    assert coverage == pytest.approx([1.0, 0.75, 1.0])
    assert waste == pytest.approx([1 - 4 / 32_768, 1 - 1.5 / 8, 0.5])
    assert "81.25 %" in texts(figure)


def test_a_missing_share_is_said(run: Path) -> None:
    empty = schema.Measured(0, 0.0, None, 0.0, {})
    figure = plots.draw_coverage_and_waste(schema.Simulated(10, 0, 5, {"window": empty}))
    assert texts(figure) == ["0.00 %", "none"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1000, "1k"), (1_048_576, "1.05M"), (2.5e9, "2.5B"), (1e12, "1T")]
)
def test_compact(value: float, text: str) -> None:
    assert plots.compact(value) == text


def test_roles_can_be_told_apart() -> None:
    """An inline SVG finds a role by its light colour, so no two may share one."""
    lights = [role.light for role in ROLES.values()]
    assert len(set(lights)) == len(lights)
    assert all(to_hex(colour) == colour for role in ROLES.values() for colour in (role.light, role.dark))
    assert type_colour("retrieval") == ROLES["retrieval"].light
    assert type_colour("unheard of") == ROLES["ink"].light
