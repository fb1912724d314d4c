"""What is learned and measured: text, recall, and the dependency language."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.benchmarks.experiments.relations import PREFIX, graph_relations, language_relations
from sheafstate.benchmarks.experiments.rows import DrawnRows
from sheafstate.benchmarks.experiments.trainer import answer_logits
from sheafstate.data import IGNORED, PackedRows, read_corpus, read_documents
from sheafstate.data.graphs import read_graphs
from sheafstate.data.synthetic import (
    DENSE_RATES,
    DependencyLanguage,
    Examples,
    dyck,
    dyck_vocabulary,
    induction,
    mqar,
    phone_book,
    phone_book_vocabulary,
    selective_copying,
)
from sheafstate.errors import InputError
from sheafstate.evaluation import evaluate, nats_by_position
from sheafstate.simulation import Relation
from sheafstate.training.corpus import RunData, prepare_data
from sheafstate.training.options import TrainingOptions

__all__ = ["KINDS", "Task", "make_task"]

FRESH, CHOOSING = 1_000_003, 2_000_003
"""Seeds of the examples that are measured on, and of those by which a rate is chosen; no training run takes them."""
ROWS_AT_A_TIME = 8
NEAREST = 64
"""Positions of the first group when nats are measured by place."""


class Task(Protocol):
    """What an experiment asks of a task."""

    @property
    def vocab_size(self) -> int:
        """Tokens of the models that learn it."""
        ...

    def rows(self, count: int, seed: int) -> Dataset:
        """At least ``count`` rows to train on."""
        ...

    def measure(self, model: PreTrainedModel, brief: bool) -> dict[str, float]:
        """Figures of a trained model; ``loss``, by which learning rates are chosen, is one of them.

        Args:
            model: the model, in evaluation mode.
            brief: whether ``loss`` alone is wanted.
        """
        ...


@dataclass(frozen=True)
class TextTask:
    """Next tokens of one document: bits per byte of a text that was held out, in windows of several lengths.

    Of the texts that are measured the first document is taken.

    Attributes:
        data: what is learned from.
        context: tokens of a row.
        contexts: lengths of windows that are measured.
        validation: the text by which a learning rate is chosen.
        test: the text that a run which counts is measured on.
        by_position: whether the nats a token are also measured by place in the longest window.
        graphs: files of annotated texts whose links a model's relations are held against, by name.
        graph_documents: texts of each.
    """

    data: RunData
    context: int
    contexts: tuple[int, ...]
    validation: str
    test: str
    by_position: bool
    graphs: Mapping[str, str]
    graph_documents: int

    @property
    def vocab_size(self) -> int:
        """Tokens of the tokenizer."""
        return len(self.tokenizer)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Learned from the training text."""
        return self.data.tokenizer

    @classmethod
    def of(cls, spec: Mapping[str, Any], folder: Path) -> "TextTask":
        """Encode the text once, under ``folder``."""
        names = {name: str(spec[name]) for name in ("train", "validation", "tokenizer") if name in spec}
        place = folder / hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
        options = TrainingOptions(
            data=names["train"],
            validation_data=names.get("validation"),
            tokenizer=names["tokenizer"],
            out=place,
            resume=True,
        )
        data = prepare_data(options, place)
        most, corpus = int(spec["measured_characters"]), read_corpus(names["train"], names.get("validation"))
        if len(corpus.train) > 1:
            raise InputError(f"{names['train']} has several documents, which peers would read as one")
        validation = corpus.validation[0][:most]
        test = read_documents(str(spec["test"]))[0][:most] if "test" in spec else validation
        graphs = spec.get("graphs", {})
        for path in graphs.values():
            next(read_graphs(path))  # what cannot be read is told before anything is trained
        contexts = tuple(spec["measured_contexts"])
        return cls(
            data,
            int(spec["context"]),
            contexts,
            validation,
            test,
            bool(spec.get("by_position", False)),
            graphs,
            int(spec.get("graph_documents", 0)),
        )

    def rows(self, count: int, seed: int) -> Dataset:
        """Packed rows of the training text; they go round."""
        return PackedRows(self.data.train, self.context, seed=seed)

    def measure(self, model: PreTrainedModel, brief: bool) -> dict[str, float]:
        """Bits per byte at each length, every window from an empty state."""
        figures, document = {}, self.validation if brief else self.test
        for context in (self.context,) if brief else self.contexts:
            rows = max(1, ROWS_AT_A_TIME * 512 // context)
            metrics = evaluate(model, self.tokenizer, [document], context=context, carry=False, batch_size=rows)
            figures[f"bits_per_byte_{context}"] = metrics.bits_per_byte
            if context == self.context:
                figures["loss"] = metrics.nats_per_token
        if self.by_position and not brief:
            figures |= self._by_position(model, document)
        if not brief:
            for name, path in self.graphs.items():
                found = graph_relations(self.tokenizer, path, self.graph_documents, self.context, model)
                figures |= {key.replace(PREFIX, f"{PREFIX}{name}: "): value for key, value in found.items()}
        return figures

    def _by_position(self, model: PreTrainedModel, document: str) -> dict[str, float]:
        """Nats a token at the positions from a power of two to the next."""
        longest = max(self.contexts)
        nats, tokens = nats_by_position(model, self.tokenizer, [document], context=longest)
        figures, begin = {}, 0
        while begin < longest:
            end = min(longest, max(NEAREST, 2 * begin))
            if tokens[begin:end].sum() > 0:
                figures[f"nats_from_{begin}"] = float(nats[begin:end].sum() / tokens[begin:end].sum())
            begin = end
        return figures


@dataclass(frozen=True)
class DrawnTask:
    """Synthetic examples: accuracy at the positions that are asked for.

    Attributes:
        vocab_size: tokens of the language.
        draw: rows of the training form, from a number of rows and a seed.
        tests: what is measured on, by the name that its accuracy gets; the first also gives the loss.
        measured_rows: rows of each test.
        kinds: names of the kinds that targets have.
        relations: what of the true relations a model's site holds, where that is asked for.
    """

    vocab_size: int
    draw: Callable[[int, int], Examples]
    tests: Mapping[str, Callable[[int, int], Examples]]
    measured_rows: int
    kinds: tuple[str, ...] = ()
    relations: Callable[[PreTrainedModel], dict[str, float]] | None = None

    def rows(self, count: int, seed: int) -> Dataset:
        """Fresh rows, none twice."""
        return DrawnRows(lambda number: self.draw(1, number), count, seed)

    def measure(self, model: PreTrainedModel, brief: bool) -> dict[str, float]:
        """Accuracy of each test (and by kind of dependency), their mean, and the loss in nats a target.

        In brief the loss is the mean over all tests, of rows of their own.
        """
        if brief:
            losses = [_answers(model, draw, self.measured_rows, (), CHOOSING)[1] for draw in self.tests.values()]
            return {"loss": fmean(float(nats.mean()) for nats in losses)}
        figures: dict[str, float] = {}
        for name, draw in self.tests.items():
            right, nats, kinds = _answers(model, draw, self.measured_rows, self.kinds, FRESH)
            figures.setdefault("loss", float(nats.mean()))
            figures[name] = float(right.mean())
            for kind, part in kinds.items():
                figures[f"{name}_{kind}"] = float(right[part].mean())
        if len(self.tests) > 1:
            figures["accuracy_mean"] = fmean(figures[name] for name in self.tests)
        return figures if self.relations is None else figures | self.relations(model)


@torch.no_grad()
def _answers(
    model: PreTrainedModel, draw: Callable[[int, int], Examples], rows: int, names: Sequence[str], seed: int
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Whether each answer is right, its nats, and which answers are of each kind."""
    right, nats = [], []
    kinds: list[np.ndarray] = []
    for start in range(0, rows, ROWS_AT_A_TIME):
        examples = draw(min(ROWS_AT_A_TIME, rows - start), seed + start)
        asked = examples.targets != IGNORED
        targets = torch.from_numpy(examples.targets[asked])
        logits, _ = answer_logits(model, torch.from_numpy(examples.input_ids), torch.from_numpy(asked))
        right.append((logits.argmax(-1) == targets).double().numpy())
        nats.append(torch.nn.functional.cross_entropy(logits, targets, reduction="none").double().numpy())
        if examples.kinds is not None:
            kinds.append(examples.kinds[asked])
    by_kind = {}
    if kinds:
        kind = np.concatenate(kinds)
        by_kind = {name: kind == code for code, name in enumerate(names) if (kind == code).any()}
    return np.concatenate(right), np.concatenate(nats), by_kind


def _recall(spec: Mapping[str, Any], folder: Path) -> DrawnTask:
    """``pairs`` is a number, or several that rows take turns with."""
    vocabulary, length = int(spec["vocab_size"]), int(spec["context"])
    pairs = spec["pairs"] if isinstance(spec["pairs"], list) else [spec["pairs"]]

    def form(pairs: Sequence[int], length: int) -> Callable[[int, int], Examples]:
        return lambda rows, seed: mqar(rows, length, int(pairs[seed % len(pairs)]), vocabulary, seed)

    tests = {f"accuracy_{n}_in_{t}": form([n], t) for n, t in spec["measured"]}
    return DrawnTask(vocabulary, form(pairs, length), tests, int(spec["measured_rows"]))


def _dependencies(spec: Mapping[str, Any], folder: Path) -> DrawnTask:
    language = DependencyLanguage(rates=DENSE_RATES)

    def form(length: int) -> Callable[[int, int], Examples]:
        return lambda rows, seed: language.draw(rows, length, seed)

    tests = {f"accuracy_{t}": form(t) for t in spec["measured_contexts"]}
    rows, kinds = int(spec["measured_rows"]), tuple(map(str, Relation))
    relations = None
    if spec.get("relation_rows"):
        relations = partial(language_relations, language, int(spec["relation_rows"]), int(spec["context"]), FRESH)
    return DrawnTask(language.vocab_size, form(int(spec["context"])), tests, rows, kinds, relations)


def _small(
    draw: Callable[..., Examples], vocabulary: Callable[[Mapping[str, Any]], int], kinds: Sequence[str] = ()
) -> Callable[[Mapping[str, Any], Path], DrawnTask]:
    """A task whose part of the plan has the arguments of its function, ``form``, and those that differ in tests."""

    def make(spec: Mapping[str, Any], folder: Path) -> DrawnTask:
        form = dict(spec["form"])
        tests = {"accuracy": form} | {f"accuracy_{name}": form | change for name, change in spec["measured"].items()}

        def drawer(arguments: Mapping[str, Any]) -> Callable[[int, int], Examples]:
            return lambda rows, seed: draw(rows, **arguments, seed=seed)

        length = draw(1, **form, seed=0).input_ids.shape[1]
        if length != spec["context"]:
            raise InputError(f"rows of this form have {length} tokens, and the context says {spec['context']}")
        drawers = {name: drawer(arguments) for name, arguments in tests.items()}
        return DrawnTask(vocabulary(form), drawer(form), drawers, int(spec["measured_rows"]), tuple(kinds))

    return make


DEPTHS = [f"depth_{depth}" for depth in range(1, 128)]

KINDS: dict[str, Callable[[Mapping[str, Any], Path], Task]] = {
    "text": TextTask.of,
    "recall": _recall,
    "dependencies": _dependencies,
    "induction": _small(induction, lambda form: form["vocab_size"]),
    "copying": _small(selective_copying, lambda form: form["vocab_size"]),
    "phone book": _small(phone_book, lambda form: phone_book_vocabulary(form["names"])),
    "dyck": _small(dyck, lambda form: dyck_vocabulary(form["kinds"]), DEPTHS),
}
"""Kind of task → what makes one from its part of the plan and a folder for encoded text."""


def make_task(spec: Mapping[str, Any], folder: Path) -> Task:
    """The task of a plan.

    Raises:
        InputError: there is no such kind, or its part of the plan lacks something.
    """
    if spec.get("kind") not in KINDS:
        raise InputError(f"the kind of a task must be one of {', '.join(KINDS)}, not {spec.get('kind')!r}")
    try:
        return KINDS[spec["kind"]](spec, folder)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a task of kind {spec['kind']} lacks or misstates {error}") from error
