"""``python -m sheafstate.benchmarks.speed DIRECTORY …``: tables of records that ``sheafstate bench --out`` left.

They are printed, or with ``--into`` written into a page between its marks. A table is named by its directory.
"""

import argparse
import json
import sys
from pathlib import Path

from sheafstate.benchmarks.pages import redraw
from sheafstate.benchmarks.speed.tables import tables
from sheafstate.errors import InputError

FILE = "bench.json"


def main(arguments: list[str] | None = None) -> int:
    """Draw the tables; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.speed", description=__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="directory")
    parser.add_argument("--into", type=Path, help="a page whose marked tables are replaced")
    options = parser.parse_args(arguments)
    drawn: dict[str, str] = {}
    try:
        for directory in options.directories:
            drawn |= _tables(directory)
        redraw(options.into, drawn)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _tables(directory: Path) -> dict[str, str]:
    path = directory / FILE
    try:
        return tables(json.loads(path.read_text(encoding="utf-8")), directory.name)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no record of a bench") from error


if __name__ == "__main__":
    sys.exit(main())
