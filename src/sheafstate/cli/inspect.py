"""``sheafstate inspect``: the site that a trained model lays over a text."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sheafstate.cli.arguments import CHECKPOINT, MOST_THREADS, text_argument
from sheafstate.errors import InputError

__all__ = ["inspect_command", "write_site"]

SITE_NAME = "site.json"


def inspect_command(
    checkpoint: Annotated[Path, typer.Argument(help=CHECKPOINT)],
    text: Annotated[str, typer.Argument(help="The passage; \\n is a line break.")],
    token: Annotated[
        int | None,
        typer.Option(help="Token whose relations are shown, counted from 0, or from the end.", show_default="the last"),
    ] = None,
    focus: Annotated[
        str | None, typer.Option(help="The same by a word: the token in which its last occurrence ends.")
    ] = None,
    layer: Annotated[
        list[int] | None, typer.Option(help="Layer to show, counted from 1; may be repeated.", show_default="all")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write site.json, a PNG file a layer and report.html into.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", min=1, max=MOST_THREADS)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, what site.json holds.")] = False,
) -> None:
    """Show how a model relates the tokens of a text, by type of patch.

    For every layer: where the patches of each interval type end (the higher
    the bar, the likelier before the token), which address each token has
    (tokens of one address share a letter), and what the marked token reads in
    each head, the strongest first. With gluing by sheaf, "passes" says how
    much of the head's section is let through, from 0 to 1.

    Example: sheafstate inspect novels "Mr. Bennet replied that he had not." --focus Bennet

    Example: sheafstate inspect runs/demo "To be, or not to be, that is the question" --focus question
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    from sheafstate.evaluation import load_checkpoint
    from sheafstate.evaluation.site import last_token_of, passage_site

    if token is not None and focus is not None:
        raise InputError("the marked token is given by --token or by --focus, not both")
    text = text_argument(text, "the text")
    if threads is not None:
        torch.set_num_threads(threads)
    disable_progress_bar()
    model, tokenizer = load_checkpoint(checkpoint, device="cuda" if torch.cuda.is_available() else "cpu")
    if focus is not None:
        token = last_token_of(tokenizer, text, text_argument(focus, "focus"))
    record = passage_site(model, tokenizer, text, token)
    chosen = _chosen(layer, len(record["layers"]))
    written = [] if out is None else write_site(record, out)
    if as_json:
        typer.echo(json.dumps(record))
        return
    _print(record, chosen)
    for path in written:
        Console().print(f"wrote {path}", highlight=False, soft_wrap=True)


def write_site(record: dict[str, Any], out: Path) -> list[Path]:
    """Write ``site.json``, a picture of every layer, and the page of all that the folder holds.

    Raises:
        OSError: a file cannot be written.
    """
    from sheafstate.report.html import write_report
    from sheafstate.report.images import write_site_images
    from sheafstate.report.schema import read_passage
    from sheafstate.training.files import write_text

    out.mkdir(parents=True, exist_ok=True)
    path = out / SITE_NAME
    write_text(path, json.dumps(record) + "\n")
    return [path, *write_site_images(read_passage(path), out), write_report(out)]


def _chosen(layers: list[int] | None, available: int) -> list[int]:
    for number in layers or []:
        if not 1 <= number <= available:
            raise InputError(f"the model has layers 1 to {available}, not {number}")
    return [number - 1 for number in layers or range(1, available + 1)]


def _print(record: dict[str, Any], layers: list[int]) -> None:
    from sheafstate.cli.site_view import layer_view, passage_heading

    console = Console(highlight=False)
    console.print(passage_heading(record))
    for number in layers:
        console.print(layer_view(record, number, console.width))
