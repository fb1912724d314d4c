"""``sheafstate evaluate``: how well a trained model predicts a text."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from sheafstate.cli.arguments import CHECKPOINT, MOST_SEED, MOST_THREADS, MOST_TOKENS
from sheafstate.cli.evaluate_task import evaluate_on_task
from sheafstate.errors import InputError

__all__ = ["evaluate_command"]

DEFAULT_LENGTH = 1024


def evaluate_command(
    checkpoint: Annotated[Path, typer.Argument(help=CHECKPOINT)],
    data: Annotated[
        str | None,
        typer.Option(
            help="Text file, JSON lines, a folder of them, a dataset saved to disk, or tinyshakespeare; with --task "
            "blimp or lambada, the file of the test."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="Instead of a text, a test: blimp, lambada, or any that lm_eval knows.")
    ] = None,
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
            max=MOST_TOKENS,
            show_default=f"{DEFAULT_LENGTH}; for windows that of the training, where it is known",
        ),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens between windows.", min=1, max=MOST_TOKENS, show_default="the context")
    ] = None,
    carry: Annotated[
        bool | None,
        typer.Option(
            "--carry/--windows",
            help="Read each document with the state carried over, or in windows that each begin from nothing.",
            show_default="carry, for a model with a state, unless --stride is given",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="With --task, examples of each subtask at the most.", min=1, show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(help="With --task, of what the test draws.", min=0, max=MOST_SEED)] = 0,
    mark: Annotated[
        bool, typer.Option("--mark/--no-mark", help="With --task, put the mark that begins a text before each context.")
    ] = True,
    batch_size: Annotated[
        int, typer.Option(help="Windows, documents or requests computed at a time.", min=1, max=MOST_TOKENS)
    ] = 8,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1, max=MOST_THREADS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure bits per byte and nats per token of a text under a trained model, or put the model to a test.

    Every token is predicted exactly once. --windows with the context of the
    training repeats the validation figure of a run. --task leaves a record of
    the test in the folder of the checkpoint.

    Example: sheafstate evaluate runs/demo --data tinyshakespeare --validation-share 0.1
    """
    import torch

    from sheafstate.data import read_documents, split_documents
    from sheafstate.evaluation import carries_state, evaluate, load_checkpoint

    if threads is not None:
        torch.set_num_threads(threads)
    if task is not None:
        _refuse(validation_share=validation_share, context=context, stride=stride, carry=carry)
        evaluate_on_task(
            checkpoint,
            task,
            data,
            limit=limit,
            batch_size=batch_size,
            seed=seed,
            mark=mark,
            as_json=as_json,
        )
        return
    if data is None:
        raise InputError("--data is missing: a text to measure on, or with --task the file of a test")
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


def _refuse(**of_texts: Any) -> None:
    """Raise an :class:`InputError` if an option is given that a test has no use for."""
    for name, value in of_texts.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} is for texts and does not go with --task")


def _training_context(checkpoint: Path) -> int:
    """The context that the options beside a checkpoint name, if there are any."""
    from sheafstate.evaluation import checkpoint_folder
    from sheafstate.training.files import read_json

    options = checkpoint_folder(checkpoint) / "options.json"
    known = read_json(options) if options.is_file() else None
    context = known.get("context") if isinstance(known, dict) else None
    return context if isinstance(context, int) and 0 < context <= MOST_TOKENS else DEFAULT_LENGTH


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
