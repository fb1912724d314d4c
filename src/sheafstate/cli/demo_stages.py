"""The stages of the demo, one function each; every one leaves its result as a file in the plan's folder."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sheafstate.cli.demo_plan import FOCUS, PASSAGE, REFERENCES, DemoPlan

if TYPE_CHECKING:
    from sheafstate.simulation import Case

__all__ = ["report", "show_site", "simulate", "train_model", "write_text"]


def simulate(plan: DemoPlan, console: Console) -> None:
    """Three sites over sequences whose dependencies are known, and how their edges grow; ``simulation.json``."""
    from sheafstate.cli.simulation_tables import sites_table
    from sheafstate.report.plots import exponents
    from sheafstate.report.schema import read_simulation
    from sheafstate.simulation import configure, experiment, write_results

    _heading(console, 1, "How many relations does a text need? A simulation with known dependencies")

    def bar(cases: "Sequence[Case]", _: str) -> "Iterable[Case]":
        stderr = Console(stderr=True)
        return track(cases, "simulating", console=stderr, transient=True, disable=not stderr.is_terminal)

    record = experiment(configure(), plan.lengths, [plan.seed], preset="default", track=bar)
    written = write_results(record, plan.out)
    console.print(sites_table(record["runs"][0]))
    scaling = read_simulation(written[0]).scaling
    if scaling:
        fitted = ", ".join(f"{name} {exponent:.3f}" for name, exponent in exponents(scaling).items())
        lengths = f"{scaling[0].length:,} to {scaling[-1].length:,}"
        console.print(f"Edges grow as a power of the length; exponents from {lengths} positions: {fitted}.")


def train_model(plan: DemoPlan, console: Console, resume: bool) -> None:
    """The ``tiny`` preset on Shakespeare; a checkpoint, ``history.jsonl``, ``metrics.json``."""
    from sheafstate.training import train
    from sheafstate.training.files import read_json, write_json

    options = plan.training(resume)
    _heading(
        console, 2, f"Training on {plan.data}: {plan.steps:,} steps of {options.batch_size} × {options.context} bytes"
    )
    path = plan.out / "metrics.json"
    if resume and path.is_file():
        console.print("An earlier demo did this and was stopped later; its model is taken.")
        metrics = read_json(path)
    else:
        if resume:
            console.print("An earlier demo was stopped here; going on from its last checkpoint.")
        metrics = train(options).metrics | {"references": REFERENCES}
        write_json(path, metrics)
    console.print(_losses(metrics))
    minutes, seconds = divmod(round(metrics["seconds"]), 60)
    console.print(
        f"Over the whole validation text, which is ASCII: a byte is a character. {metrics['parameters']:,} parameters, "
        f"{metrics['train_tokens']:,} bytes trained on in {minutes} min {seconds} s."
    )


def write_text(plan: DemoPlan, console: Console) -> None:
    """What the model writes after a prompt, shown as it comes; ``sample.json``."""
    import torch
    from transformers import TextStreamer, set_seed

    _heading(
        console, 3, f"Writing {plan.characters} characters after {plan.prompt.strip()!r}, with a state of fixed size"
    )
    model, tokenizer = _load(plan.out)
    ids = tokenizer(plan.prompt, return_tensors="pt").input_ids
    set_seed(plan.seed)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        temperature=0.8,
        top_k=0,
        max_new_tokens=plan.characters,
        suppress_tokens=tokenizer.all_special_ids,
        pad_token_id=tokenizer.pad_token_id,
        streamer=TextStreamer(tokenizer),
    )
    text = tokenizer.decode(output[0, ids.shape[1] :])
    _write_json(plan.out / "sample.json", {"prompt": plan.prompt, "text": text})


def show_site(plan: DemoPlan, console: Console) -> None:
    """Boundaries, addresses and the relations of one token in the last layer; ``site.json`` has all layers."""
    from sheafstate.cli.site_view import layer_view, passage_heading
    from sheafstate.evaluation.site import last_token_of, passage_site

    _heading(console, 4, "The site of a passage that it has not seen")
    model, tokenizer = _load(plan.out)
    record = passage_site(model, tokenizer, PASSAGE, last_token_of(tokenizer, PASSAGE, FOCUS))
    _write_json(plan.out / "site.json", record)
    console.print(passage_heading(record))
    console.print(layer_view(record, len(record["layers"]) - 1, console.width))


def report(plan: DemoPlan, console: Console, seconds: float, program: str) -> None:
    """The page about it all, and what to try next; ``report.html``."""
    from sheafstate.report.html import write_report

    page = write_report(plan.out, "Sheaf-State demo")
    _heading(console, 5, f"Done in {int(seconds // 60)} min {seconds % 60:.0f} s")
    for path, what in (
        (page, "the page with all figures; open it in a browser"),
        (plan.out, "the model: AutoModelForCausalLM.from_pretrained loads it"),
        (plan.out / "metrics.json", "validation loss and more"),
    ):
        console.print(f"  {path}  [dim]{what}[/dim]", soft_wrap=True)
    console.print("\nTo try next:")
    for arguments in (
        f'generate {plan.out} "JULIET:" --temperature 0.8',
        f'inspect {plan.out} "Good morrow, good Katharina. Good morrow, Kath"',
        f"evaluate {plan.out} --data {plan.data} --validation-share 0.1",
        "estimate --preset base --context 131072",
        f"train --data {plan.data} --tokenizer bpe:1024 --out runs/mine",
    ):
        console.print(f"  {program} {arguments}", soft_wrap=True, markup=False)


def _heading(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold]{number}  {text}[/bold]")


def _losses(metrics: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("validation loss")
    table.add_column("nats per character", justify="right")
    table.add_row("this model", f"[bold]{metrics['val_nats_per_token']:.3f}[/bold]")
    for name, loss in REFERENCES.items():
        table.add_row(name, f"{loss:.2f} ")
    return table


def _load(folder: Path) -> Any:
    """Model and tokenizer, as anyone would load them from the folder."""
    from sheafstate.evaluation import load_checkpoint
    from sheafstate.training.progress import quiet

    with quiet():
        return load_checkpoint(folder)


def _write_json(path: Path, value: Any) -> None:
    from sheafstate.training.files import write_text

    write_text(path, json.dumps(value) + "\n")
