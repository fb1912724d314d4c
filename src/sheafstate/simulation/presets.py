"""Presets of the simulation, and how single values of one are replaced."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from sheafstate.errors import InputError
from sheafstate.simulation.config import Budget, Rates, SimulationConfig

__all__ = ["PRESETS", "configure"]

_DEEP = Rates(live_topics=8, recurrence_depth=4)

PRESETS: dict[str, SimulationConfig] = {
    "default": SimulationConfig(),
    "deep": SimulationConfig(_DEEP, Budget(recent_anchors=8, recent_mentions=4)),
    "starved": SimulationConfig(_DEEP, Budget()),
    "noisy": SimulationConfig(replace(_DEEP, hidden_marks=0.05, false_marks=0.01), Budget(3, 4, 12, 8)),
}
"""``default`` reproduces the published figures. ``deep`` has dependencies that reach past the newest entry and a budget
that follows; ``starved`` has the same dependencies and the default's budget; ``noisy`` hides and invents marks."""


def configure(preset: str = "default", overrides: Mapping[str, str | float] | None = None) -> SimulationConfig:
    """A preset with some of its values replaced.

    Args:
        preset: a name in ``PRESETS``.
        overrides: field of ``Rates``, ``Budget`` or ``SimulationConfig`` → value (a number, or its text).

    Raises:
        InputError: for a name that does not exist or a value that is not allowed.
    """
    if preset not in PRESETS:
        raise InputError(f"no simulation preset {preset!r}; choose from {', '.join(PRESETS)}")
    config = PRESETS[preset]
    for name, value in (overrides or {}).items():
        config = _replaced(config, name, value)
    return config


def _replaced(config: SimulationConfig, name: str, value: str | float) -> SimulationConfig:
    owners = {f.name: part for part in ("rates", "budget") for f in fields(getattr(config, part))}
    if name in owners:
        part = owners[name]
        changes: dict[str, Any] = {part: _with(getattr(config, part), name, value)}
        return replace(config, **changes)
    if name == "baseline_window":
        return _with(config, name, value)
    raise InputError(f"no simulation parameter {name!r}; choose from {', '.join([*owners, 'baseline_window'])}")


def _with(record: Any, name: str, value: str | float) -> Any:
    kind = type(getattr(record, name))
    try:
        return replace(record, **{name: kind(value) if isinstance(value, str) else value})
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{name} must be {'an integer' if kind is int else 'a number'}, got {value!r}") from None
