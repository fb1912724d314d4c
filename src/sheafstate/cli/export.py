"""``sheafstate export``: a trained model in 8, 4 or 2 bits a weight, ready for use."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from sheafstate.cli.units import in_bytes
from sheafstate.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from sheafstate.modeling import SheafStateForCausalLM

__all__ = ["export_command"]

WEIGHTS = "*.safetensors"


def export_command(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    output: Annotated[Path, typer.Argument(help="Folder to write; new or empty.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            "--quantization", "-q", help="int8, int4 or ternary.", show_default="what the model was trained with"
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Text on which to measure both models: a file, JSON lines, a folder, or tinyshakespeare."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Pack the weights of a trained model into a folder of its own.

    The linear maps of all layers are stored in 8, 4 or 2 bits a weight and are
    used as they lie there. Embedding, norms and the router stay as they are.
    The packed model computes what the model would compute that is trained
    with this quantization; a model trained without one loses a little, which
    --data shows. It cannot be trained further.

    Example: sheafstate export runs/demo runs/demo-int8 --quantization int8
    """
    from sheafstate.evaluation import load_checkpoint
    from sheafstate.modeling import SheafStateForCausalLM
    from sheafstate.training.export import export

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists already; the packed model needs a new or empty folder")
    model, tokenizer = load_checkpoint(checkpoint)
    if not isinstance(model, SheafStateForCausalLM):
        raise InputError(f"a {type(model).__name__} cannot be packed: only Sheaf-State models can")
    packed = model.pack(quantization)
    output.mkdir(parents=True, exist_ok=True)
    export(packed, tokenizer, output)
    record = _record(checkpoint, output, packed)
    if data is not None:
        record["bits_per_byte"] = [_bits_per_byte(each, tokenizer, data) for each in (model, packed)]
    if as_json:
        typer.echo(json.dumps(record))
    else:
        _show(record)


def _record(checkpoint: Path, output: Path, packed: "SheafStateForCausalLM") -> dict[str, Any]:
    from sheafstate.accounting import checkpoint_bytes

    mode = packed.config.quantization
    return {
        "quantization": mode,
        "output": str(output),
        "bytes_before": _size(checkpoint),
        "bytes": _size(output),
        "bytes_by_formula": checkpoint_bytes(packed.config, mode),
        "bytes_of_embedding": packed.config.vocab_size * packed.config.d_model * packed.dtype.itemsize,
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(WEIGHTS))


def _bits_per_byte(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", source: str) -> float:
    from sheafstate.data import read_documents
    from sheafstate.evaluation import evaluate

    return evaluate(model, tokenizer, list(read_documents(source))).bits_per_byte


def _show(record: dict[str, Any]) -> None:
    before, after = record["bytes_before"], record["bytes"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "before", record["quantization"], "ratio"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("weights on disk", in_bytes(before), in_bytes(after), f"{after / before:.3f}")
    if "bits_per_byte" in record:
        bits = record["bits_per_byte"]
        table.add_row("bits per byte of the text", *(f"{value:.4f}" for value in bits), f"{bits[1] / bits[0]:.4f}")
    console = Console()
    console.print(table)
    console.print(
        f"By formula the packed tensors take {in_bytes(record['bytes_by_formula'])}, "
        f"{in_bytes(record['bytes_of_embedding'])} of it the embedding.\nWritten to {record['output']}",
        highlight=False,
    )
