"""Operations and bytes that a work cannot do without, from the configurations alone."""

from sheafstate.accounting import cost, parameters, state_bytes
from sheafstate.benchmarks.speed.machine import Machine
from sheafstate.benchmarks.speed.sides import OURS, dense_config, mamba2_config, sheaf_config
from sheafstate.benchmarks.speed.works import Kind, Work
from sheafstate.config import SheafStateConfig

__all__ = ["ceiling", "floor_seconds", "operations"]

TRAINING = 3
"""Operations of a training step over those of a forward pass."""


def operations(side: str, preset: str, work: Work) -> int:
    """Operations of one call: multiplies and adds of the products, the readout and what is read.

    A Llama counts the relations of the causal half only. Mamba-2 is counted by its recurrence (five operations for
    every number of its state), which is less than its chunked form does.
    """
    if side == "mamba2":
        forward = _mamba2(preset, work)
    else:
        config = sheaf_config(preset) if side == OURS else dense_config(preset)
        found = cost(config, work.context)
        forward = found.decode_flops if work.kind is Kind.DECODE else found.flops * work.rows
        if work.kind is Kind.PREFILL:
            forward -= 2 * config.d_model * config.vocab_size * (work.context - 1)
    return TRAINING * forward if work.kind is Kind.TRAIN else forward


def _mamba2(preset: str, work: Work) -> int:
    config = mamba2_config(preset)
    width, inner, state = config.hidden_size, 2 * config.hidden_size, config.state_size
    convolved = inner + 2 * state
    products = width * (inner + convolved + config.num_heads) + inner * width
    token = 2 * products + 2 * config.conv_kernel * convolved + 5 * inner * state
    readouts = 1 if work.kind is not Kind.TRAIN else work.tokens
    return work.tokens * config.num_hidden_layers * token + readouts * 2 * width * config.vocab_size


def moved_bytes(side: str, preset: str, work: Work) -> int:
    """Bytes that a decoding step reads: every weight that a token uses, the readout, and of the state what is read.

    Of the addresses of a content type a position reads one, and at the most another is written.
    """
    size = 2 if work.dtype == "bf16" else 4
    if side == "mamba2":
        mamba = mamba2_config(preset)
        products = operations(side, preset, work) // 2
        return size * (products + mamba.num_hidden_layers * 2 * mamba.hidden_size * mamba.state_size)
    config = sheaf_config(preset) if side == OURS else dense_config(preset)
    counted, read = parameters(config), SheafStateConfig(**(config.to_dict() | {"num_addresses": 2}))
    return size * (counted.active + counted.embedding) + state_bytes(read, work.context, size)


def floor_seconds(side: str, preset: str, work: Work, machine: Machine) -> float:
    """Seconds that no implementation can go below here: operations over the measured rate, or bytes over bandwidth."""
    rate = machine.gflops_bf16 if work.dtype == "bf16" else machine.gflops
    seconds = operations(side, preset, work) / (rate * 1e9)
    if work.kind is Kind.DECODE:
        seconds = max(seconds, moved_bytes(side, preset, work) / (machine.gbytes * 1e9))
    return seconds


def ceiling(against: str, preset: str, work: Work, machine: Machine) -> float:
    """How many times faster than a peer we would be if both ran at their floor."""
    return floor_seconds(against, preset, work, machine) / floor_seconds(OURS, preset, work, machine)
