"""What is fuzzed: for each reader, good files once, and one call on damaged ones."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .mutate import HOSTILE, damaged_bytes, damaged_json, damaged_value

__all__ = ["TARGETS", "Target"]

Call = Callable[[Random, Path], None]
Damage = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        prepare: writes good files into a folder, once.
        call: uses them, or their damaged copies; may raise ``InputError``.
        damage: pattern of a file's name → how files of that name are damaged, of which one or two are in a call.
    """

    prepare: Callable[[Path], None]
    call: Call
    damage: dict[str, Damage]

    def run(self, random: Random, good: Path, work: Path) -> None:
        """One call on a damaged copy of the good files."""
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(good, work)
        files = sorted((path, how) for pattern, how in self.damage.items() for path in work.rglob(pattern))
        for path, how in random.sample(files, min(len(files), random.choice((1, 1, 1, 2)))):
            path.write_bytes(how(random, path.read_bytes()))
        self.call(random, work)


def _nothing(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _prepare_texts(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "text.txt").write_text("To be, or not to be\n<|endoftext|>\nthat is the question 🦜\n" * 9)
    lines = [{"text": f"line {number} é", "id": number, "more": [None, {"a": 1.5}]} for number in range(9)]
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _read_texts(random: Random, folder: Path) -> None:
    from sheafstate.data import read_corpus

    source = random.choice((folder, folder / "text.txt", folder / "lines.jsonl"))
    separator = random.choice(("<|endoftext|>", "\n", "", None, " "))
    share = random.choice((0.0, 0.1, 0.5, 0.99, float("nan"), -1.0))
    read_corpus(source, share=share, separator=separator, field=random.choice(("text", "more", "")))


def _prepare_dataset(folder: Path) -> None:
    from datasets import Dataset, DatasetDict, disable_progress_bars

    disable_progress_bars()
    parts = {
        name: Dataset.from_dict({"text": [f"{name} {n} é" for n in range(50)]}) for name in ("train", "validation")
    }
    DatasetDict(parts).save_to_disk(folder)


def _read_dataset(random: Random, folder: Path) -> None:
    from sheafstate.data import read_corpus

    source = random.choice((folder, folder / "train"))
    corpus = read_corpus(source, field=random.choice(("text", "text", "id")))
    for text in (*corpus.train, *corpus.validation):
        text.encode("utf-8")


def _prepare_tokenizers(folder: Path) -> None:
    from sheafstate.data import load_tokenizer

    for name, text in (("byte", []), ("char", ["abc é"]), ("bpe:300", ["to be or not to be " * 50])):
        load_tokenizer(name, text).save_pretrained(folder / name.replace(":", "-"))


def _use_tokenizer(random: Random, folder: Path) -> None:
    from sheafstate.data import TokenStream, load_tokenizer, saved_tokenizer
    from sheafstate.data.labels import token_labels

    kind = random.choice(("byte", "char", "bpe-300"))
    tokenizer = saved_tokenizer(folder / kind) if random.random() < 0.9 else load_tokenizer(_spec(random))
    stream = TokenStream.build(tokenizer, ["to be é\n🦜", "or"])
    token_labels(tokenizer, stream.tokens[:20])
    tokenizer.decode(stream.tokens.tolist())
    tokenizer.save_pretrained(folder / "again")


def _spec(random: Random) -> Any:
    return random.choice((*(str(value) for value in HOSTILE), "bpe:", "bpe:0", "bpe:x", "bpe:²", "byte:3", "."))


def _prepare_stream(folder: Path) -> None:
    from sheafstate.data import TokenStream, load_tokenizer

    TokenStream.write(load_tokenizer("byte"), ["to be or not", "that is"], folder)


def _read_stream(random: Random, folder: Path) -> None:
    from sheafstate.data import PackedRows, TokenStream, Windows

    stream = TokenStream.read(folder)
    rows = PackedRows(stream, random.choice((2, 4, 7, 100)), seed=random.randrange(9))
    rows.set_epoch(random.randrange(3))
    for index in range(len(rows)):
        rows[index]
    list(Windows.over(stream, random.choice((1, 4, 100))).batches(2))


TARGETS: dict[str, Target] = {
    "texts": Target(_prepare_texts, _read_texts, {"*.txt": damaged_bytes, "*.jsonl": damaged_bytes}),
    "dataset": Target(_prepare_dataset, _read_dataset, {"*.json": damaged_json, "*.arrow": damaged_bytes}),
    "tokenizer": Target(_prepare_tokenizers, _use_tokenizer, {"*.json": damaged_json}),
    "stream": Target(
        _prepare_stream, _read_stream, {"*.json": damaged_json, "*.npy": damaged_bytes, "*.bin": damaged_bytes}
    ),
}


def _configuration(random: Random, _: Path) -> None:
    from sheafstate import SheafStateConfig
    from sheafstate.accounting import cost, parameters

    plain = {"num_layers": 2, "heads": {"local": 2, "memory": 1}, "d_model": 16, "eos_token_id": [0, 1]}
    fields = {name: value for name, value in SheafStateConfig().to_dict().items() if random.random() < 0.5} | plain
    damaged = damaged_value(random, fields)
    if isinstance(damaged, dict):
        by_preset = random.random() < 0.2
        config = SheafStateConfig.from_preset("tiny", **damaged) if by_preset else SheafStateConfig(**damaged)
        parameters(config)
        cost(config, random.choice((1, 1000)), 4)


def _settings(random: Random, _: Path) -> None:
    from sheafstate import SheafStateConfig
    from sheafstate.training import TrainingOptions, parse_overrides

    defaults = SheafStateConfig.from_preset("tiny").to_dict()
    names = [*defaults, "heads.local", "heads.", ".", "heads.local.x", "", "wndow"]
    values = [json.dumps(value) for value in HOSTILE] + ["true", "True", "1.0", "07", "{", "NaN", "[" * 100_000]
    settings = [random.choice(names) + random.choice(("=", "=", "=", "", "==")) + random.choice(values)]
    overrides = parse_overrides(settings, defaults)
    SheafStateConfig.from_preset("tiny", **overrides)
    options = {"data": "d", "out": "o", "steps": 5, "context": 8, "beta2": 0.9, "seed": 1, "schedule": "wsd"}
    options |= {"batch_size": 4, "accumulate": 2, "learning_rate": 1e-3, "warmup": 0.1, "validate_every": 3}
    changed = random.choice([name for name in options if name not in ("data", "out")])
    TrainingOptions(**(options | {changed: random.choice(HOSTILE)}), overrides=overrides).fixed()


def _simulation(random: Random, folder: Path) -> None:
    from sheafstate.simulation import configure, experiment, write_results

    config = configure("deep").as_dict()
    names = [*config["rates"], *config["budget"], "baseline_window", "", "window "]
    values = [value for value in HOSTILE if isinstance(value, str | float | int)]
    changes = {random.choice(names): random.choice(values) for _ in range(random.choice((1, 1, 2)))}
    length = random.choice((2, 3, 64, 200, 0, -1, 10**30))
    seed = random.choice((0, 1, 2**32, 2**64, -1))
    write_results(experiment(configure(random.choice(("default", "noisy")), changes), [length], [seed]), folder)


TARGETS |= {
    "configuration": Target(_nothing, _configuration, {}),
    "settings": Target(_nothing, _settings, {}),
    "simulation": Target(_nothing, _simulation, {}),
}


def _prepare_checkpoint(folder: Path) -> None:
    from tests.checkpoints import save_small_checkpoint

    save_small_checkpoint(folder)


def _load_checkpoint(random: Random, folder: Path) -> None:
    import torch

    from sheafstate.cli.generate import _write
    from sheafstate.evaluation import evaluate, load_checkpoint

    model, tokenizer = load_checkpoint(folder)
    ids = torch.tensor([list(b"Speak")])
    how = {"do_sample": random.random() < 0.5, "max_new_tokens": 3}
    _write(model, tokenizer, ids, seed=0, stream=False, stop=[], **how)
    evaluate(model, tokenizer, ["to be"], context=4)


def _prepare_run(folder: Path) -> None:
    from sheafstate.training.checkpoints import publish

    for step in (4, 8):
        staged = folder / "staged"
        staged.mkdir(parents=True)
        for name in ("model.safetensors", "optimizer.pt"):
            (staged / name).write_bytes(b"x" * step)
        publish(staged, folder / f"checkpoint-{step}")
    lines = [{"step": step, "tokens": 9, "loss": 1.0, "seconds": 0.5} for step in range(9)]
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "options.json").write_text(json.dumps({"steps": 9, "seed": 0}))


def _find_checkpoint(random: Random, folder: Path) -> None:
    from transformers import TrainerState

    from sheafstate.training import TrainingOptions, last_checkpoint
    from sheafstate.training.callbacks import History
    from sheafstate.training.files import read_json
    from sheafstate.training.run import _same_run

    last_checkpoint(folder)
    History(folder / "history.jsonl", 9).go_on(TrainerState(global_step=random.choice((0, 4, 99))))
    _same_run(TrainingOptions(data="d", out="o"), read_json(folder / "options.json"))


TARGETS |= {
    "checkpoint": Target(
        _prepare_checkpoint, _load_checkpoint, {"*.json": damaged_json, "*.safetensors": damaged_bytes}
    ),
    "run": Target(_prepare_run, _find_checkpoint, {"*.json": damaged_json, "*.jsonl": damaged_bytes}),
}


def _prepare_results(folder: Path) -> None:
    from sheafstate.simulation import Sweep, configure, experiment, write_results

    write_results(experiment(configure(), [64, 128], [0], [Sweep.SCALING]), folder)
    metrics = {"val_nats_per_token": 2.0, "val_bits_per_byte": 3.0, "parameters": 9, "references": {"other": 1.5}}
    metrics |= {"steps": 9, "train_tokens": 90, "seconds": 1.5, "versions": {"torch": "2"}, "command": ["a"]}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    lines = [{"step": n, "tokens": 9 * n, "loss": 3.0 - n / 9} for n in range(1, 9)]
    lines += [{"step": 4, "val_nats_per_token": 2.5}, {"step": 8, "val_nats_per_token": 2.0}]
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "sample.json").write_text(json.dumps({"prompt": "To", "text": " be"}))
    edge = {"later": 2, "earlier": 0, "type": "local", "head": 0, "weight": 0.5}
    layer = {
        "boundaries": {"syntax": [0.1, 0.2, 0.3]},
        "addresses": [[0, 1, 0]],
        "edges": [edge, edge | {"weight": None}],
    }
    site = {"tokens": ["a", "\n", "é"], "length": 3, "focus": 2, "layers": [layer, layer]}
    (folder / "site.json").write_text(json.dumps(site))


def _read_results(random: Random, folder: Path) -> None:
    from sheafstate.report import schema

    schema.read_references(folder / "metrics.json")
    schema.read_history(folder / "history.jsonl")
    schema.read_simulation(folder / "simulation.json")
    schema.read_sample(folder / "sample.json")
    schema.read_passage(folder / "site.json")


def _make_report(random: Random, folder: Path) -> None:
    from sheafstate.report.html import render_report

    render_report(folder, random.choice((None, "", "<b>&")))


def _draw_images(random: Random, folder: Path) -> None:
    from sheafstate.report.images import write_images

    for name in random.sample(("history.jsonl", "simulation.json", "site.json"), 2):
        (folder / name).unlink()
    write_images(folder, folder / "images")


_RESULTS: dict[str, Damage] = {"*.json": damaged_json, "*.jsonl": damaged_bytes}

TARGETS |= {
    "results": Target(_prepare_results, _read_results, _RESULTS),
    "report": Target(_prepare_results, _make_report, _RESULTS),
    "images": Target(_prepare_results, _draw_images, _RESULTS),
}
