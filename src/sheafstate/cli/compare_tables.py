"""The tables that ``sheafstate compare`` prints."""

import statistics
from typing import Any

from rich.table import Table

__all__ = ["length_table", "position_table"]

POSITION, RELATION = "nats_from_", "site|"
HEADINGS = {"bits_per_byte_": "bits/byte at ", "accuracy_": "% "}


def length_table(study: dict[str, Any]) -> Table:
    """A row a side: what was measured, and what the side is made of."""
    names = [name for name in _figures(study) if not name.startswith((POSITION, RELATION)) and name != "loss"]
    table = Table(title=study["name"])
    table.add_column("side")
    for name in (*map(_heading, names), "parameters", "state, numbers", "lr", "tokens/s", "seeds"):
        table.add_column(name, justify="right")
    for side in study["sides"]:
        state = "" if side["state_elements"] is None else f"{side['state_elements']:,}"
        table.add_row(
            side["side"],
            *(_spread(side["figures"].get(name, []), name) for name in names),
            f"{side['parameters']:,}",
            state,
            f"{side['learning_rate']:g}",
            f"{side['tokens_per_second']:,.0f}",
            str(len(side["seeds"])),
        )
    return table


def position_table(study: dict[str, Any]) -> Table:
    """A row a side: nats a token at the positions from each power of two on."""
    names = [name for name in _figures(study) if name.startswith(POSITION)]
    table = Table(title=f"{study['name']}: nats a token by position")
    table.add_column("side")
    for name in names:
        table.add_column(f"from {int(name.removeprefix(POSITION)):,}", justify="right")
    for side in study["sides"] if names else []:
        table.add_row(side["side"], *(_mean(side["figures"].get(name, [])) for name in names))
    return table


def _figures(study: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for side in study["sides"] for name in side["figures"]))


def _heading(name: str) -> str:
    for prefix, words in HEADINGS.items():
        if name.startswith(prefix):
            return words + name.removeprefix(prefix).replace("_", " ")
    return name


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.3f}" if known else ""


def _spread(values: list[float | None], name: str) -> str:
    known = [100 * v if name.startswith("accuracy") else v for v in values if v is not None]
    if not known:
        return ""
    digits = 1 if name.startswith("accuracy") else 4
    mean = f"{statistics.fmean(known):.{digits}f}"
    return mean if len(known) < 2 else f"{mean} ± {statistics.stdev(known):.{digits}f}"
