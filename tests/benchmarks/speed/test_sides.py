"""All sides have as many parameters without embeddings as ours, and their operations are those that are done."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sheafstate import accounting
from sheafstate.benchmarks.speed.floor import ceiling, floor_seconds, operations
from sheafstate.benchmarks.speed.machine import Machine
from sheafstate.benchmarks.speed.sides import OURS, SIDES, dense_config, make_side, mamba2_config, sheaf_config
from sheafstate.benchmarks.speed.works import Kind, Work
from sheafstate.errors import InputError

MACHINE = Machine(gflops=100.0, gflops_bf16=200.0, gbytes=10.0, threads=2)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_sides_have_the_same_parameters(side: str, preset: str) -> None:
    model = make_side(side, preset)
    count = sum(p.numel() for p in model.parameters()) - model.get_input_embeddings().weight.numel()
    wanted = accounting.parameters(sheaf_config(preset)).non_embedding
    assert abs(count / wanted - 1) <= 0.02


def test_an_unknown_side_is_refused() -> None:
    with pytest.raises(InputError, match="gpt"):
        make_side("gpt", "tiny")


@pytest.mark.parametrize("side", ["llama", "mamba2"])
def test_operations_are_the_products_of_matrices_and_what_mixes_positions(side: str) -> None:
    length = 32
    model, work = make_side(side, "tiny").eval(), Work(Kind.PREFILL, length)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, length, dtype=torch.long), logits_to_keep=1)
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    if side == "llama":
        config = dense_config("tiny")
        mixing = 4 * config.num_heads * config.d_head * (length * (length + 1) // 2) * config.num_layers
    else:
        config = mamba2_config("tiny")
        inner = config.num_heads * config.head_dim
        convolved = inner + 2 * config.state_size
        mixing = (5 * inner * config.state_size + 8 * convolved) * length * config.num_hidden_layers
    assert products + mixing == pytest.approx(operations(side, "tiny", work), rel=0.01)


def test_operations_of_training_are_three_forward_passes() -> None:
    train, read = Work(Kind.TRAIN, 512), Work(Kind.PREFILL, 512)
    config = dense_config("tiny")
    readouts = 2 * config.d_model * config.vocab_size * 511
    rows = train.rows
    assert operations("llama", "tiny", train) == 3 * rows * (operations("llama", "tiny", read) + readouts)


def test_the_ceiling_grows_with_the_context_and_is_one_for_ourselves() -> None:
    found = [ceiling("llama", "small", Work(Kind.PREFILL, n), MACHINE) for n in (512, 2048, 8192, 32_768)]
    assert found == sorted(found)
    assert found[0] < 2 < 5 < found[-1]
    assert ceiling(OURS, "small", Work(Kind.DECODE, 128), MACHINE) == 1.0


def test_decoding_is_bound_by_what_is_read() -> None:
    work = Work(Kind.DECODE, 128)
    seconds = floor_seconds("llama", "small", work, MACHINE)
    model = make_side("llama", "small")
    assert seconds > 4 * sum(p.numel() for p in model.parameters()) / 10e9
    assert floor_seconds("llama", "small", Work(Kind.DECODE, 128, "bf16"), MACHINE) < seconds
