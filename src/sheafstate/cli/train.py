"""``sheafstate train``: a language model from a text."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["train_command"]

_DATA = "Data"
_MODEL = "Model"
_OPTIMISER = "Optimiser"
_RUN = "Run"


def train_command(
    data: Annotated[
        str,
        typer.Option(
            help="Text file, JSON lines, a folder of them, a dataset saved to disk, or tinyshakespeare.",
            rich_help_panel=_DATA,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the run.", rich_help_panel=_RUN)],
    validation_data: Annotated[
        str | None, typer.Option(help="Text to measure on, instead of a share of --data.", rich_help_panel=_DATA)
    ] = None,
    validation_share: Annotated[
        float, typer.Option(help="Last part of --data that is measured on; 0 for none.", rich_help_panel=_DATA)
    ] = 0.1,
    separator: Annotated[
        str,
        typer.Option(
            help="What stands between the documents of a text file; \\n is a line break, '' makes it one document.",
            rich_help_panel=_DATA,
        ),
    ] = "<|endoftext|>",
    text_field: Annotated[
        str, typer.Option(help="Key or column of the text in JSON lines and datasets.", rich_help_panel=_DATA)
    ] = "text",
    tokenizer: Annotated[
        str, typer.Option(help="byte, char, bpe:N, or the folder of a saved one.", rich_help_panel=_MODEL)
    ] = "byte",
    preset: Annotated[str, typer.Option(help="tiny, small or base.", rich_help_panel=_MODEL)] = "tiny",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a field of the configuration, e.g. window=16 or heads.local=2; may be repeated.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps in all.", rich_help_panel=_OPTIMISER)] = 2000,
    batch_size: Annotated[
        int, typer.Option(help="Rows of a step, over all processes.", rich_help_panel=_OPTIMISER)
    ] = 16,
    context: Annotated[int, typer.Option(help="Tokens of a row.", rich_help_panel=_OPTIMISER)] = 256,
    learning_rate: Annotated[
        float, typer.Option("--lr", help="Learning rate at its peak.", rich_help_panel=_OPTIMISER)
    ] = 3e-3,
    schedule: Annotated[str, typer.Option(help="cosine, wsd or constant.", rich_help_panel=_OPTIMISER)] = "cosine",
    warmup: Annotated[float, typer.Option(help="Share of the steps that warm up.", rich_help_panel=_OPTIMISER)] = 0.05,
    decay: Annotated[
        float, typer.Option(help="Share of the steps in which wsd falls to zero.", rich_help_panel=_OPTIMISER)
    ] = 0.2,
    weight_decay: Annotated[float, typer.Option(help="On matrices alone.", rich_help_panel=_OPTIMISER)] = 0.1,
    beta2: Annotated[
        float, typer.Option(help="AdamW's decay of the second moments.", rich_help_panel=_OPTIMISER)
    ] = 0.95,
    max_grad_norm: Annotated[
        float, typer.Option(help="Gradients are cut to this norm.", rich_help_panel=_OPTIMISER)
    ] = 1.0,
    accumulate: Annotated[
        int, typer.Option(help="Parts in which a process computes its rows of a step.", rich_help_panel=_OPTIMISER)
    ] = 1,
    log_every: Annotated[int, typer.Option(help="Steps between logs.", rich_help_panel=_RUN)] = 10,
    validate_every: Annotated[
        int | None,
        typer.Option(help="Steps between measurements.", show_default="a quarter of --steps", rich_help_panel=_RUN),
    ] = None,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.", rich_help_panel=_RUN)] = 500,
    keep_checkpoints: Annotated[int, typer.Option(help="Checkpoints that are kept.", rich_help_panel=_RUN)] = 2,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", rich_help_panel=_RUN)] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last whole checkpoint in --out.", rich_help_panel=_RUN)
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove the run that is in --out.", rich_help_panel=_RUN)
    ] = False,
    bf16: Annotated[bool, typer.Option("--bf16", help="Compute in bfloat16.", rich_help_panel=_RUN)] = False,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the model; needs a C++ compiler.", rich_help_panel=_RUN)
    ] = False,
    gradient_checkpointing: Annotated[
        bool,
        typer.Option("--gradient-checkpointing", help="Less memory for a second forward pass.", rich_help_panel=_RUN),
    ] = False,
    threads: Annotated[int | None, typer.Option(help="CPU threads.", rich_help_panel=_RUN)] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Stay on the CPU.", rich_help_panel=_RUN)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_RUN)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print metrics.json.", rich_help_panel=_RUN)] = False,
) -> None:
    """Train a model on text; leave a checkpoint, its figures and its history in a folder.

    The folder loads with AutoModelForCausalLM and AutoTokenizer. A run that
    was stopped goes on with the same command and --resume.

    On several processes: torchrun --nproc-per-node 2 -m sheafstate train ...

    Example: sheafstate train --data tinyshakespeare --tokenizer char --steps 2000 --out runs/shakespeare
    """
    from sheafstate.config import SheafStateConfig
    from sheafstate.training import TrainingOptions, last_checkpoint, parse_overrides, train

    overrides = parse_overrides(settings, SheafStateConfig.from_preset(preset).to_dict()) if settings else {}
    options = TrainingOptions(
        data=data,
        out=out,
        validation_data=validation_data,
        validation_share=validation_share,
        separator=separator.replace("\\n", "\n"),
        text_field=text_field,
        tokenizer=tokenizer,
        preset=preset,
        overrides=overrides,
        steps=steps,
        batch_size=batch_size,
        context=context,
        learning_rate=learning_rate,
        schedule=schedule,
        warmup=warmup,
        decay=decay,
        weight_decay=weight_decay,
        beta2=beta2,
        max_grad_norm=max_grad_norm,
        accumulate=accumulate,
        log_every=log_every,
        validate_every=validate_every,
        save_every=save_every,
        keep_checkpoints=keep_checkpoints,
        seed=seed,
        resume=resume,
        overwrite=overwrite,
        bf16=bf16,
        compile=compiled,
        gradient_checkpointing=gradient_checkpointing,
        threads=threads,
        cpu=cpu,
        progress=not quiet,
    )
    try:
        result = train(options)
    except KeyboardInterrupt:
        typer.echo(_interrupted(last_checkpoint(out)), err=True)
        raise
    if result.is_main:
        typer.echo(json.dumps(result.metrics)) if as_json else Console().print(_table(result.metrics, out))


def _interrupted(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return "stopped before the first checkpoint: the same command with --resume begins anew"
    return f"stopped: the same command with --resume goes on from {checkpoint}"


def _table(metrics: dict[str, Any], out: Path) -> Table:
    table = Table(title=f"run in {out}", show_header=False)
    rows = {
        "validation, nats a token": ("val_nats_per_token", ".4f"),
        "validation, bits a byte": ("val_bits_per_byte", ".4f"),
        "tokens trained on": ("train_tokens", ",d"),
        "parameters": ("parameters", ",d"),
        "seconds": ("seconds", ".1f"),
    }
    for label, (name, form) in rows.items():
        value = metrics[name]
        table.add_row(label, "-" if value is None else format(value, form))
    return table
