"""Records of runs: one JSON object a line, written once, never changed."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheafstate.errors import InputError

__all__ = ["Record", "append_record", "read_records"]

Record = Mapping[str, Any]


def read_records(path: Path) -> dict[str, Record]:
    """Records by the key of their run; none if the file is not there.

    Raises:
        InputError: a line is no record.
    """
    if not path.exists():
        return {}
    records = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            records[record["key"]] = record
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"line {number} of {path} is no record of a run") from error
    return records


def append_record(path: Path, record: Record) -> None:
    """Add a record at the end and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())
