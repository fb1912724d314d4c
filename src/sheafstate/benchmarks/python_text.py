"""``python -m sheafstate.benchmarks.python_text OUT``: Python to learn from, and held-out files with their definitions.

The text is the standard library of the interpreter that runs this, without its tests: there wherever Python is. Files
are shuffled by a hash of their path and parted into ``train.txt``, ``valid.txt`` and ``test.txt``, each one document;
``graphs.jsonl`` has every held-out file with the definition that each name goes back to.
"""

import argparse
import hashlib
import json
import sys
import sysconfig
from pathlib import Path

from sheafstate.data.python_links import python_graph
from sheafstate.errors import InputError

HELD_OUT = 5
"""In a hundred files, for each of validation and test."""
LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "__pycache__", "lib2to3", "pydoc_data", "encodings"}
"""Folders of tests, of other packages, and of tables that are nobody's prose."""


def main(arguments: list[str] | None = None) -> int:
    """Write the files; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sheafstate.benchmarks.python_text", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument(
        "--source", type=Path, default=Path(sysconfig.get_path("stdlib")), help="folder of Python files"
    )
    parser.add_argument("--megabytes", type=float, default=11.0, help="of the training text at the most")
    options = parser.parse_args(arguments)
    try:
        written = write_python_text(options.out, options.source, int(1e6 * options.megabytes))
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(f"{options.out / name}: {size:,} characters" for name, size in written.items()))
    return 0


def write_python_text(out: Path, source: Path, most: int) -> dict[str, int]:
    """Write the parts of a folder of Python files; return their sizes in characters.

    Raises:
        InputError: the folder has too few files that can be read.
    """
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    graphs = []
    for path in _files(source):
        try:
            text = path.read_text(encoding="utf-8")
            share = int(_digest(path, source)[:8], 16) % 100
            part = "test" if share < HELD_OUT else "valid" if share < 2 * HELD_OUT else "train"
            if part != "train":
                graphs.append({"id": path.relative_to(source).as_posix(), "split": part} | python_graph(text))
        except (InputError, UnicodeDecodeError, OSError):
            continue
        if part != "train" or sum(map(len, parts["train"])) + len(text) <= most:
            parts[part].append(text)
    if not all(parts.values()):
        raise InputError(f"{source} has too few Python files to learn from and to measure on")
    out.mkdir(parents=True, exist_ok=True)
    for part, texts in parts.items():
        (out / f"{part}.txt").write_text("\n\n".join(texts), encoding="utf-8", newline="")
    lines = [json.dumps(graph, ensure_ascii=False) for graph in graphs if graph["def"]]
    (out / "graphs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return {f"{part}.txt": sum(map(len, texts)) for part, texts in parts.items()}


def _files(source: Path) -> list[Path]:
    found = [path for path in source.rglob("*.py") if not LEFT_OUT & set(path.relative_to(source).parts[:-1])]
    return sorted(found, key=lambda path: _digest(path, source))


def _digest(path: Path, source: Path) -> str:
    return hashlib.sha256(path.relative_to(source).as_posix().encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
