"""``--set key=value``: fields of the configuration from text, each with the type its preset has."""

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from sheafstate.errors import InputError

__all__ = ["parse_overrides"]


def parse_overrides(settings: Iterable[str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``key=value`` settings; ``outer.inner=value`` sets one entry of a field that is a table.

    Args:
        settings: e.g. ``["window=16", "heads.local=2", "output_gate=false"]``; a later one wins.
        defaults: field → value; a table keeps the entries that no setting names.

    Returns:
        The fields that were named, whole tables included.

    Raises:
        InputError: no such field, or a value that its type does not allow.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        key, sign, text = setting.partition("=")
        if not sign or not key:
            raise InputError(f"a setting is written key=value, not {setting!r}")
        outer, _, inner = key.partition(".")
        default = _known(outer, defaults)
        if isinstance(default, Mapping) and inner:
            table = found.setdefault(outer, deepcopy(dict(default)))
            table[inner] = _typed(key, text, table.get(inner, next(iter(default.values()), None)))
        elif inner:
            raise InputError(f"{outer} is one value, so {key!r} names nothing in it")
        else:
            found[outer] = _typed(key, text, default)
    return found


def _known(name: str, defaults: Mapping[str, Any]) -> Any:
    if name in defaults:
        return defaults[name]
    close = difflib.get_close_matches(name, defaults, 1)
    raise InputError(f"there is no field {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))


def _typed(key: str, text: str, default: Any) -> Any:
    """``text`` as a value of the type of ``default``; as JSON, or else as it is, where that is ``None``."""
    if isinstance(default, str):
        return text
    try:
        value = json.loads(text.lower() if isinstance(default, bool) else text)
    except (ValueError, RecursionError):
        value = text
    if default is None:
        return value
    kinds = {bool: "true or false", int: "a whole number", float: "a number", dict: 'a table such as {"local": 2}'}
    kind = next((kind for kind in kinds if isinstance(default, kind)), None)
    fits = isinstance(value, int | float if kind is float else kind) if kind else True
    fits = fits and not (kind is float and abs(value) > sys.float_info.max)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{key} must be {kinds[kind] if kind else 'like ' + repr(default)}, not {text!r}")
    return float(value) if kind is float else value
