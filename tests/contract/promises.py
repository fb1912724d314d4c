"""The promises, numbered, and how a test says which of them it holds and what breaks it.

A test is marked ``@contract(3, SHARED)``: it holds promise 3 and was seen to fail with the mutation ``SHARED`` applied
to the package. ``python -m tests.contract.mutants`` applies every mutation and sees its tests fail;
``python -m tests.contract.table`` writes the table in ``docs/contract.md``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable)

GROUPS = {
    "Cached and uncached": range(1, 7),
    "Batches and documents": range(7, 10),
    "Numbers": range(10, 17),
    "Construction, saving, training": range(17, 26),
    "Bad input": range(26, 28),
}

PROMISES = {
    1: "Reading in chunks, at any split, gives the logits of reading at once.",
    2: "Decoding far beyond the window equals the uncached result; state and speed do not grow with the context.",
    3: "A state can be stored, branched and restored; using a branch changes no other.",
    4: "Every way to generate gives the tokens and scores of the uncached forward pass.",
    5: "Identical calls give identical results; modules remember nothing.",
    6: "A state serves truncated back-propagation; detaching it, and only that, stops the gradient.",
    7: "Padding, left or right, changes neither logits nor generated tokens.",
    8: "Documents packed in a row neither see nor influence each other, with padding too.",
    9: "Likelihoods do not depend on the size of the batch.",
    10: "Every kernel equals its plain twin in values and gradients at every length and width.",
    11: "Half precision, large inputs and extreme decays stay finite, and close to float64.",
    12: "A stream of 100,000 tokens neither drifts nor overflows.",
    13: "Peak memory grows linearly with the length.",
    14: "Seeded runs on a CPU are equal bit for bit.",
    15: "The compiled model equals the eager one, at other lengths too.",
    16: "Gradient checkpointing changes neither loss nor gradients.",
    17: "However a model is built, its decays, step sizes, biases and fixed directions are what they must be.",
    18: "A saved model loads with identical logits, tied weights stored once.",
    19: "A resumed training is the uninterrupted one; a kill costs at most the steps since the last checkpoint.",
    20: "Any text survives its tokenizer; no token outside the vocabulary is sampled; unfit tokenizers are refused.",
    21: "Every expert stays in use, and padding changes no load.",
    22: "A packed low-bit model has the size that its bits say and the logits of its quantised self.",
    23: "Libraries that take a Llama take the model: PEFT, Trainer, pipelines, Auto classes, lm_eval.",
    24: "A clean environment with a CPU is enough to install, import and train; no compiler, no network.",
    25: "The oldest and newest supported transformers pass; the wheel works without the source.",
    26: "Bad input costs one clear sentence and a non-zero exit, and nothing that was saved.",
    27: "Files from others never run code.",
}


@dataclass(frozen=True)
class Mutation:
    """A fault that somebody could make.

    Attributes:
        file: path below ``src/sheafstate``.
        old: text that occurs there once.
        new: what stands there instead, or, if ``old`` ends with a colon or is whole lines, any text.
        fault: what the model does wrong then, for the table.
    """

    file: str
    old: str
    new: str
    fault: str


def contract(*numbers: int, breaks: tuple[Mutation, ...] | Mutation = ()) -> Callable[[Test], Test]:
    """Mark a test as holding promises, and say which mutations were seen to make it fail."""
    unknown = set(numbers) - PROMISES.keys()
    if unknown or not numbers:
        raise ValueError(f"there are no promises {sorted(unknown)}")
    mutations = (breaks,) if isinstance(breaks, Mutation) else breaks
    return pytest.mark.contract(*numbers, breaks=mutations)
