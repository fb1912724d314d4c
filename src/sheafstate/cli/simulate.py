"""``sheafstate simulate``: how many true relations three sites hold, at what cost."""

from sheafstate.errors import InputError

__all__ = ["simulate_command"]


def simulate_command() -> None:
    """Measure dense, windowed and sheaf sites on sequences with a known dependency graph."""
    raise InputError("the simulation is not in this version yet")
