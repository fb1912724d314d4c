"""``sheafstate import-llama``: a Llama's weights in a model of this package."""

import json
from pathlib import Path
from typing import Annotated

import typer

from sheafstate.errors import InputError

__all__ = ["import_llama_command"]


def import_llama_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the Llama: config.json, safetensors, tokenizer.json.")],
    out: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
    window: Annotated[
        int | None, typer.Option(help="Positions that a head reads, itself included.", min=1, show_default="all")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Take over a Llama, so that it runs as a model of this package.

    What is written predicts what the Llama predicts: its heads are local ones
    over the complete site, where every position reads all before it, and
    their sections are glued plainly. Everything here then works on it:
    generate, evaluate, inspect, training on. With --window, heads read the
    last positions alone, which shows what the far ones were worth.

    Keys and values that heads share (grouped queries) are repeated. A Llama
    with rotary scaling, biases or another activation than SiLU is refused.
    Nothing is downloaded, and no code of the folder is run.

    Example: sheafstate import-llama my-llama runs/llama
    """
    from transformers.utils.logging import disable_progress_bar

    from sheafstate.evaluation import load_checkpoint
    from sheafstate.llama import from_llama
    from sheafstate.training.export import count_parameters, export

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} must be a new or an empty folder")
    disable_progress_bar()
    llama, tokenizer = load_checkpoint(folder)
    model = from_llama(llama, window)
    out.mkdir(parents=True, exist_ok=True)
    export(model, tokenizer, out)
    config = model.config
    record = {
        "out": str(out),
        "layers": config.num_layers,
        "heads": config.num_heads,
        "d_head": config.d_head,
        "site": config.site,
        "window": window,
        **count_parameters(model),
    }
    if as_json:
        typer.echo(json.dumps(record))
        return
    reads = "all positions before it" if window is None else f"the last {window} positions"
    typer.echo(
        f"wrote {out}: {config.num_layers} layers of {config.num_heads} heads, each reading {reads}; "
        f"{record['parameters']:,} parameters"
    )
