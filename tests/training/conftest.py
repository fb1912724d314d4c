"""Runs small enough to be made by the dozen: one layer of five patch types, or of a Llama, on a page of text."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback

from sheafstate.data import read_documents
from sheafstate.training import TrainingOptions

SMALL = {
    "num_layers": 1,
    "d_model": 16,
    "d_head": 4,
    "d_state": 4,
    "heads": {"local": 1, "syntax": 1, "instruction": 1, "memory": 1, "retrieval": 1},
    "window": 4,
    "num_kept": 2,
    "num_anchors": 2,
    "retrieval_degree": 2,
    "num_addresses": 4,
    "d_address": 4,
    "d_ff": 16,
    "num_experts": 2,
    "d_expert": 8,
}

STEPS_OF_AN_EPOCH = 13
CONTEXT, BATCH = 16, 4


def build_llama(options: TrainingOptions, tokenizer) -> LlamaForCausalLM:
    """The model of somebody else, of the same size."""
    marks = {f"{name}_token_id": tokenizer.eos_token_id for name in ("bos", "eos", "pad")}
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            **marks,
        )
    )


@pytest.fixture(scope="session")
def page(tmp_path_factory) -> Path:
    """Documents of unlike length that fill the rows of an epoch of 13 steps and a little more."""
    text = read_documents("tinyshakespeare")[0]
    wanted = STEPS_OF_AN_EPOCH * CONTEXT * BATCH + 5
    borders = [0, 3, 40, 41, 300, 310, 500, wanted - 2 * 7]
    path = tmp_path_factory.mktemp("page") / "page.txt"
    documents = [text[begin:end] for begin, end in pairwise(borders)]
    path.write_text("<|endoftext|>".join(documents))
    return path


@pytest.fixture(scope="session")
def held_out(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("held_out") / "held_out.txt"
    path.write_text(read_documents("tinyshakespeare")[0][-300:] + "<|endoftext|>Exeunt.")
    return path


@pytest.fixture
def options(page: Path, held_out: Path, tmp_path: Path) -> Callable[..., TrainingOptions]:
    """Options of a small run, with any of them set apart."""

    def make(**changes) -> TrainingOptions:
        small = {
            "data": page,
            "validation_data": held_out,
            "out": tmp_path / "run",
            "overrides": SMALL,
            "context": CONTEXT,
            "batch_size": BATCH,
            "steps": 4,
            "log_every": 1,
            "learning_rate": 1e-2,
            "progress": False,
            "cpu": True,
        }
        return TrainingOptions(**(small | changes))

    return make


class StopAt(TrainerCallback):
    """Ends a run early, as a person or a queue does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step >= self.step
        return control


class Witness:
    """Builds a model that tells which rows it was trained on."""

    def __init__(self, build) -> None:
        self.build = build
        self.batches: list[list] = []

    def __call__(self, options, tokenizer):
        model = self.build(options, tokenizer)
        model.register_forward_pre_hook(self.note, with_kwargs=True)
        return model

    def note(self, model, arguments, named) -> None:
        if model.training:
            self.batches.append(named["input_ids"].tolist())
