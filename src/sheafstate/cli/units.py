"""Figures as people read them: 1,234,567 as ``1.23 M``, 1,536 bytes as ``1.5 KiB``."""

__all__ = ["in_bytes", "short"]

_THOUSANDS = ("", " k", " M", " G", " T", " P", " E")
_KIBI = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def short(value: float) -> str:
    """Three significant digits and a decimal prefix, without one below a thousand."""
    return _scaled(value, 1000, _THOUSANDS)


def in_bytes(size: float) -> str:
    """Three significant digits and a binary unit."""
    scaled = _scaled(size, 1024, tuple(f" {unit}" for unit in _KIBI))
    return scaled


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    rank = 0
    while rank < len(units) - 1 and abs(value) >= (999.5 if base == 1000 else 1023.5):
        value /= base
        rank += 1
    whole = rank == 0 and float(value).is_integer()
    digits = 0 if whole or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f}{units[rank]}"
