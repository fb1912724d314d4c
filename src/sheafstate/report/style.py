"""How figures look: colours by meaning, in a light and a dark variant, and matplotlib's settings.

Figures are drawn in the light colours. Each light colour stands for one role, so an inline SVG can replace it by the
role's CSS variable and follow the reader's theme, while a PNG keeps the light one.
"""

import colorsys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sheafstate.patches import PatchType

__all__ = ["ROLES", "Role", "address_colour", "new_figure", "settings", "site_colour", "type_colour"]


@dataclass(frozen=True)
class Role:
    """A colour's meaning and its two variants, as ``#rrggbb``. Light variants are distinct from each other."""

    name: str
    light: str
    dark: str


ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        Role("ink", "#1b2430", "#e8ecf2"),
        Role("soft", "#5b6675", "#a9b3c1"),
        Role("grid", "#d5dae1", "#333c48"),
        Role("mark", "#fff1bf", "#5a4a12"),
        Role("dense", "#b3372f", "#ff8a80"),
        Role("window", "#9a6700", "#e8b64a"),
        Role("sheaf", "#0b6e99", "#5cc3ee"),
        Role("local", "#0072b2", "#56b4e9"),
        Role("syntax", "#008a64", "#36d6a4"),
        Role("sentence", "#557a00", "#b2d235"),
        Role("topic", "#8c6d00", "#e6c34a"),
        Role("instruction", "#c65102", "#ff9a5c"),
        Role("memory", "#a62c72", "#f48cc6"),
        Role("retrieval", "#7439b8", "#be9bf7"),
        Role("workspace", "#64707f", "#b4bdc9"),
        Role("output", "#2a3443", "#d5dae1"),
    )
}

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": ROLES["ink"].light,
    "axes.labelcolor": ROLES["soft"].light,
    "axes.edgecolor": ROLES["grid"].light,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": ROLES["grid"].light,
    "grid.linewidth": 0.6,
    "xtick.color": ROLES["grid"].light,
    "ytick.color": ROLES["grid"].light,
    "xtick.labelcolor": ROLES["soft"].light,
    "ytick.labelcolor": ROLES["soft"].light,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "sheafstate",
}


@contextmanager
def settings() -> Iterator[None]:
    """The settings under which figures are made and written, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that no global state knows."""
    return Figure(figsize=(width, height), layout="constrained")


def type_colour(name: str) -> str:
    """The colour of a patch type; of a name that is none, the ink."""
    return ROLES[name if name in set(PatchType) else "ink"].light


def site_colour(name: str) -> str:
    """The colour of one of the simulation's sites; of a name that is none, the soft ink."""
    return ROLES[name if name in ("dense", "window", "sheaf") else "soft"].light


def address_colour(address: int) -> str:
    """A colour for an address, apart from its neighbours', readable on both themes."""
    hue = (address * 0.618034) % 1.0
    red, green, blue = colorsys.hls_to_rgb(hue, 0.58 if address % 2 else 0.48, 0.5)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
