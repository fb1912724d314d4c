"""Any text on one line, for figures and terminals."""

import unicodedata

__all__ = ["printable"]

_GLYPHS = {"\n": "\u21b5", "\r": "\u240d", "\t": "\u21e5"}
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def printable(text: str) -> str:
    """Text that can be shown: control characters and what steers the direction as symbols, never empty."""
    return "".join(_GLYPHS.get(c, "\ufffd" if unicodedata.category(c) in _UNPRINTABLE else c) for c in text) or "\u2205"
