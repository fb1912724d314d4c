"""The result files of a run, as records. Nothing else is known to this package: a figure needs no model and no rerun.

==================  ==========================================================================================
file                holds
==================  ==========================================================================================
``metrics.json``    one object of figures; see ``docs/files.md`` for the names that have a meaning
``history.jsonl``   a line a log entry: training ``{"step", "tokens", "loss", "learning_rate"}``, validation
                    ``{"step", "val_nats_per_token", "val_bits_per_byte"}``; other keys are left alone
``simulation.json`` ``{"runs": [run, …], "sweeps": {"scaling": {"points": [{"run": run}, …]}}}``, or one run alone
``site.json``       the site of a passage, see :class:`Passage`
``sample.json``     ``{"prompt", "text"}``: what the model wrote, without the prompt
==================  ==========================================================================================
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sheafstate.errors import InputError

__all__ = [
    "REFERENCES",
    "Edge",
    "History",
    "Layer",
    "Measured",
    "Passage",
    "Sample",
    "Simulated",
    "Simulation",
    "TrainPoint",
    "ValidationPoint",
    "read_history",
    "read_object",
    "read_passage",
    "read_references",
    "read_sample",
    "read_simulation",
]

Record = TypeVar("Record")

REFERENCES = "references"
"""Name in ``metrics.json`` under which losses of other models stand, to draw beside ours."""


@dataclass(frozen=True)
class TrainPoint:
    """Mean training loss, nats per token, when ``tokens`` had been seen."""

    step: int
    tokens: int
    loss: float


@dataclass(frozen=True)
class ValidationPoint:
    """Validation loss after ``step`` steps."""

    step: int
    nats_per_token: float


@dataclass(frozen=True)
class History:
    """What a run logged, in the order of the file."""

    train: tuple[TrainPoint, ...]
    validation: tuple[ValidationPoint, ...]


@dataclass(frozen=True)
class Measured:
    """One site over one sequence; shares are fractions, ``None`` where there was nothing to divide by.

    Attributes:
        edges: relations of the site.
        coverage: share of the true edges among them.
        waste: share of them that are not true.
        edges_per_token: edges / length.
        coverage_by_type: type of the true edges → the coverage of that type.
    """

    edges: int
    coverage: float | None
    waste: float | None
    edges_per_token: float
    coverage_by_type: dict[str, float | None]


@dataclass(frozen=True)
class Simulated:
    """One run of the simulation; ``sites`` are by name, in the order of the file."""

    length: int
    seed: int
    true_edges: int
    sites: dict[str, Measured]


@dataclass(frozen=True)
class Simulation:
    """``main`` is the first run of the file, ``scaling`` the runs over several lengths, the shortest first, if any."""

    main: Simulated
    scaling: tuple[Simulated, ...]


@dataclass(frozen=True)
class Sample:
    """What a model wrote after a prompt."""

    prompt: str
    text: str


@dataclass(frozen=True)
class Edge:
    """A relation of one layer: position ``later`` reads ``earlier`` in a head; ``weight`` in [0, 1] if there is one."""

    later: int
    earlier: int
    type: str
    head: int
    weight: float | None


@dataclass(frozen=True)
class Layer:
    """A layer's site.

    Attributes:
        boundaries: interval type → probability that a patch ends before a position, ``length`` numbers each.
        addresses: for every address map the address of every position.
        edges: relations; those of other positions than the focus may be left out.
    """

    boundaries: dict[str, tuple[float, ...]]
    addresses: tuple[tuple[int, ...], ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Passage:
    """The site of a passage (``site.json``)::

        {"tokens": [str, …], "length": int, "focus": int,
         "layers": [{"boundaries": {"syntax": [float, …], …}, "addresses": [[int, …], …],
                     "edges": [{"later": int, "earlier": int, "type": str, "head": int, "weight": float|null}, …]}, …]}

    ``tokens`` are the ``length`` tokens as text; ``focus`` is the position whose relations are drawn.
    """

    tokens: tuple[str, ...]
    focus: int
    layers: tuple[Layer, ...]


def read_object(path: Path) -> dict[str, Any]:
    """The one JSON object in a file.

    Raises:
        InputError: if it is none.
        OSError: if the file cannot be read.
    """
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold one JSON object, not a {type(value).__name__}")
    return value


def read_references(path: Path) -> dict[str, float]:
    """Validation losses of other models, nats per token, that ``metrics.json`` names to compare with; maybe none.

    Raises:
        InputError: if they are no losses.
        OSError: if the file cannot be read.
    """
    value = read_object(path).get(REFERENCES, {})
    try:
        return {str(name): float(loss) for name, loss in value.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: {REFERENCES} must map names to losses") from None


def read_history(path: Path) -> History:
    """Read ``history.jsonl``. A last line that a killed run left half-written is passed over.

    Raises:
        InputError: if another line is not a JSON object, naming it.
        OSError: if the file cannot be read.
    """
    train: list[TrainPoint] = []
    validation: list[ValidationPoint] = []
    lines = _text(path).split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if "loss" in entry:
                train.append(TrainPoint(int(entry["step"]), int(entry["tokens"]), float(entry["loss"])))
            if "val_nats_per_token" in entry:
                validation.append(ValidationPoint(int(entry["step"]), float(entry["val_nats_per_token"])))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if number < len(lines):
                raise InputError(f"{path}, line {number}: {_reason(error)}") from None
    return History(tuple(train), tuple(validation))


def read_simulation(path: Path) -> Simulation:
    """Read ``simulation.json``.

    Raises:
        InputError: if it is none.
        OSError: if the file cannot be read.
    """
    value = read_object(path)

    def parse() -> Simulation:
        runs = [_simulated(run) for run in value.get("runs", [value])]
        swept = value.get("sweeps", {}).get("scaling", {}).get("points", [])
        scaling = [_simulated(point["run"]) for point in swept] or runs
        by_length = tuple(sorted(scaling, key=lambda run: (run.length, run.seed)))
        return Simulation(runs[0], by_length if by_length[0].length < by_length[-1].length else ())

    return _parsed(parse, path, "result of the simulation")


def read_sample(path: Path) -> Sample:
    """Read ``sample.json``.

    Raises:
        InputError: if it is none.
        OSError: if the file cannot be read.
    """
    value = read_object(path)
    return _parsed(lambda: Sample(str(value["prompt"]), str(value["text"])), path, "sample of text")


def read_passage(path: Path) -> Passage:
    """Read ``site.json``.

    Raises:
        InputError: if it is none, or its parts differ in length.
        OSError: if the file cannot be read.
    """
    value = read_object(path)

    def parse() -> Passage:
        tokens = tuple(str(token) for token in value["tokens"])
        layers = tuple(_layer(layer) for layer in value["layers"])
        passage = Passage(tokens, int(value["focus"]), layers)
        _check_lengths(passage, int(value["length"]))
        return passage

    return _parsed(parse, path, "site of a passage")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None


def _parsed(parse: Callable[[], Record], path: Path, what: str) -> Record:
    try:
        return parse()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path} is no {what}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _simulated(run: dict[str, Any]) -> Simulated:
    return Simulated(
        int(run["length"]),
        int(run["seed"]),
        int(run["true_edges"]),
        {str(name): _measured(site) for name, site in run["sites"].items()},
    )


def _measured(site: dict[str, Any]) -> Measured:
    coverage, waste = (None if site[key] is None else float(site[key]) for key in ("coverage", "waste"))
    covered = {str(name): row["coverage"] for name, row in site.get("by_type", {}).items()}
    by_type = {name: None if share is None else float(share) for name, share in covered.items()}
    return Measured(int(site["edges"]), coverage, waste, float(site["edges_per_token"]), by_type)


def _layer(layer: dict[str, Any]) -> Layer:
    edges = map(_edge, layer["edges"])
    boundaries = {name: tuple(map(float, values)) for name, values in layer["boundaries"].items()}
    return Layer(boundaries, tuple(tuple(map(int, row)) for row in layer["addresses"]), tuple(edges))


def _edge(edge: dict[str, Any]) -> Edge:
    later, earlier, head = (int(edge[key]) for key in ("later", "earlier", "head"))
    return Edge(later, earlier, str(edge["type"]), head, None if edge["weight"] is None else float(edge["weight"]))


def _check_lengths(passage: Passage, length: int) -> None:
    if not len(passage.tokens) == length > passage.focus >= 0:
        sizes = f"{len(passage.tokens)} tokens, length {length}, focus {passage.focus}"
        raise ValueError(f"as many tokens as length says and a focus among them are wanted, got {sizes}")
    for number, layer in enumerate(passage.layers):
        for row in (*layer.boundaries.values(), *layer.addresses):
            if len(row) != length:
                raise ValueError(f"layer {number} has a row of {len(row)} values for {length} tokens")
        for edge in layer.edges:
            if not 0 <= edge.earlier < edge.later < length:
                raise ValueError(f"layer {number} has the edge ({edge.later}, {edge.earlier}) in {length} tokens")
