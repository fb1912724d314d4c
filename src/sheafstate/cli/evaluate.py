"""``sheafstate evaluate``: how well a trained model predicts a text."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["evaluate_command"]

DEFAULT_LENGTH = 1024


def evaluate_command(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    data: Annotated[
        str, typer.Option(help="Text file, JSON lines, a folder of them, a dataset saved to disk, or tinyshakespeare.")
    ],
    validation_share: Annotated[
        float | None, typer.Option(help="Measure only this last part of --data, as train holds it out.")
    ] = None,
    separator: Annotated[
        str, typer.Option(help="What stands between the documents of a text file; \\n is a line break.")
    ] = "<|endoftext|>",
    text_field: Annotated[str, typer.Option(help="Key or column of the text in JSON lines and datasets.")] = "text",
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens of a window, or of a chunk of the carried reading.",
            min=1,
            show_default=f"{DEFAULT_LENGTH}; for windows that of the training, where it is known",
        ),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens between windows.", min=1, show_default="the context")
    ] = None,
    carry: Annotated[
        bool | None,
        typer.Option(
            "--carry/--windows",
            help="Read each document with the state carried over, or in windows that each begin from nothing.",
            show_default="carry, for a model with a state, unless --stride is given",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Windows or documents computed at a time.", min=1)] = 8,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure bits per byte and nats per token of a text under a trained model.

    Every token is predicted exactly once. --windows with the context of the
    training repeats the validation figure of a run.

    Example: sheafstate evaluate runs/demo --data tinyshakespeare --validation-share 0.1
    """
    import torch

    from sheafstate.data import read_documents, split_documents
    from sheafstate.evaluation import carries_state, evaluate, load_checkpoint

    if threads is not None:
        torch.set_num_threads(threads)
    documents = read_documents(data, separator=separator.replace("\\n", "\n"), field=text_field)
    if validation_share is not None:
        documents = split_documents(documents, validation_share).validation
    model, tokenizer = load_checkpoint(checkpoint, device="cuda" if torch.cuda.is_available() else "cpu")
    carried = carries_state(model) and stride is None if carry is None else carry
    context = context or (DEFAULT_LENGTH if carried else _training_context(checkpoint))
    began = time.perf_counter()
    metrics = evaluate(
        model, tokenizer, documents, context=context, stride=stride, carry=carried, batch_size=batch_size
    )
    record = metrics.record() | {
        "reading": "carried" if carried else "windows",
        "context": context,
        "stride": None if carried else stride or context,
        "seconds": round(time.perf_counter() - began, 3),
    }
    typer.echo(json.dumps(record)) if as_json else Console().print(_table(record, data))


def _training_context(checkpoint: Path) -> int:
    """The context that the options beside a checkpoint name, if there are any."""
    from sheafstate.training.files import read_json

    options = checkpoint / "options.json"
    return read_json(options).get("context", DEFAULT_LENGTH) if options.is_file() else DEFAULT_LENGTH


def _table(record: dict[str, Any], data: str) -> Table:
    table = Table(title=f"{data}, {record['reading']}", show_header=False)
    for label, name, form in (
        ("bits a byte", "bits_per_byte", ".4f"),
        ("nats a token", "nats_per_token", ".4f"),
        ("perplexity", "perplexity", ",.3f"),
        ("tokens", "tokens", ",d"),
        ("bytes", "bytes", ",d"),
        ("seconds", "seconds", ".1f"),
    ):
        table.add_row(label, format(record[name], form))
    return table
