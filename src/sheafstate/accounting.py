"""Parameters, edges, operations and state bytes from the configuration alone; nothing is built. Source: DESIGN §6.

Operations are counted as the equations state them (a multiply and an add are two), not as blocks and chunks round them
up. ``tests/laws/test_accounting.py`` holds the built model to every formula.
"""

from dataclasses import dataclass

from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.patches import PATCHES, PatchType, Reader

__all__ = [
    "Cost",
    "Parameters",
    "checkpoint_bytes",
    "cost",
    "degrees",
    "edges",
    "parameters",
    "state_bytes",
    "state_elements",
]

WIDE = 4  # bytes of what is kept in float32 whatever the model's dtype
INTEGER = 8
ROW_ENTRIES = 5
"""Integers that a row's place takes: see ``state.RowState``."""


@dataclass(frozen=True)
class Parameters:
    """Counts of parameters.

    Attributes:
        total: all that are stored (a tied readout counts once).
        embedding: of these, in the embedding and an untied readout.
        active: without embeddings, those that one token uses (one routed expert).
    """

    total: int
    embedding: int
    active: int

    @property
    def non_embedding(self) -> int:
        """All but the embeddings."""
        return self.total - self.embedding


BITS = {"none": 32, "int8": 8, "int4": 4, "ternary": 2}
"""Bits that a weight takes in packed storage."""


@dataclass(frozen=True)
class Cost:
    """What a context costs.

    Attributes:
        context: positions.
        edges: relations of all layers over the whole context.
        flops: operations of a forward pass over the whole context.
        flops_per_token: operations of the pass divided by the positions.
        decode_flops: operations of one more token after the context.
        state_bytes: bytes carried while decoding one row after the context.
    """

    context: int
    edges: int
    flops: int
    flops_per_token: float
    decode_flops: int
    state_bytes: int


def _heads(config: SheafStateConfig, reader: Reader) -> dict[PatchType, int]:
    return {kind: n for kind, n in config.covers.items() if PATCHES[kind].reader is reader}


def _convolved(config: SheafStateConfig) -> int:
    """Channels that feed the dynamics."""
    dynamic = _heads(config, Reader.DYNAMICS)
    natural = sum(n for kind, n in dynamic.items() if kind is not PatchType.MEMORY)
    return sum(dynamic.values()) * config.d_head + (2 * config.d_state if natural else 0)


def _input_width(config: SheafStateConfig) -> int:
    """Columns of a layer's input projection."""
    covers, width = config.covers, config.d_head
    gate = width if config.output_gate else 0
    attention = 3 * width * (covers.get(PatchType.LOCAL, 0) + covers.get(PatchType.INSTRUCTION, 0))
    retrieval = covers.get(PatchType.RETRIEVAL, 0)
    return (
        len(config.interval_types)
        + (retrieval if config.write_licence else 0)
        + covers.get(PatchType.INSTRUCTION, 0)
        + _convolved(config)
        + sum(_heads(config, Reader.DYNAMICS).values())
        + attention
        + retrieval * width
        + config.num_heads * (gate + (1 if config.gluing == "sheaf" else 0))
    )


def _vectors(config: SheafStateConfig) -> int:
    """Parameters of a layer that are no matrices of linear maps: biases, norms, rates, the convolution."""
    covers, width, heads = config.covers, config.d_head, config.num_heads
    retrieval = covers.get(PatchType.RETRIEVAL, 0)
    count = 2 * config.d_model + _convolved(config) * (config.d_conv + 1)
    count += 3 * sum(_heads(config, Reader.DYNAMICS).values()) + retrieval * (2 + width)
    count += retrieval if config.retrieval_recency else 0
    count += len(config.interval_types)
    count += (retrieval if config.write_licence else 0) + covers.get(PatchType.INSTRUCTION, 0)
    if config.gluing == "sheaf":
        count += 2 * heads
    return count


def _router(config: SheafStateConfig) -> int:
    return config.num_experts * config.d_model


def _linear_maps(config: SheafStateConfig) -> list[tuple[int, int, int]]:
    """Rows, columns and number of a layer's linear maps, the routed experts' last."""
    d, experts = config.d_model, config.num_experts
    maps = [(_input_width(config), d, 1), (d, config.num_heads * config.d_head, 1)]
    maps += [(2 * config.d_ff, d, 1), (d, config.d_ff, 1)] if config.d_ff else []
    return maps + ([(2 * config.d_expert, d, experts), (d, config.d_expert, experts)] if experts else [])


def _linear(config: SheafStateConfig) -> tuple[int, int]:
    """Weights of a layer's linear maps: stored, and used by one token."""
    maps = _linear_maps(config)
    stored = sum(rows * columns * number for rows, columns, number in maps)
    return stored, sum(rows * columns for rows, columns, _ in maps)


def _fixed(config: SheafStateConfig) -> int:
    """Numbers of a layer that are saved and not trained: the maps to address vectors and the directions."""
    return config.num_maps * config.d_address * (config.d_model + config.num_addresses // 2)


def checkpoint_bytes(config: SheafStateConfig, quantization: str = "none", dtype_bytes: int = 4) -> int:
    """Bytes of the tensors of a saved model; the file adds a header of about a hundred bytes a tensor.

    Args:
        config: the configuration.
        quantization: how the layers' linear maps are packed. Each takes bits x weights / 8, every row filled up to
            whole bytes, and a scale a row (ternary: a scale a matrix); embedding, norms and vectors are not packed.
        dtype_bytes: bytes of a number that is not packed.

    Raises:
        InputError: unknown quantization.
    """
    if quantization not in BITS:
        raise InputError(f"quantization must be one of {', '.join(BITS)}, not {quantization!r}")
    full = parameters(config).total + config.num_layers * _fixed(config)
    if quantization == "none":
        return full * dtype_bytes
    per_byte = 8 // BITS[quantization]
    layer = 0
    for rows, columns, number in _linear_maps(config):
        scales = 1 if quantization == "ternary" else rows
        layer += number * (rows * -(-columns // per_byte) + scales * dtype_bytes)
    return (full - config.num_layers * _linear(config)[0]) * dtype_bytes + config.num_layers * layer


def parameters(config: SheafStateConfig) -> Parameters:
    """Count the parameters of a configuration."""
    stored, used = _linear(config)
    rest = _vectors(config) + _router(config)
    embedding = config.vocab_size * config.d_model * (1 if config.tie_word_embeddings else 2)
    layers, norm = config.num_layers, config.d_model
    return Parameters(layers * (stored + rest) + norm + embedding, embedding, layers * (used + rest) + norm)


def degrees(config: SheafStateConfig) -> dict[PatchType, int]:
    """Most relations that one head of each type in use gives a position; the complete site has no bound and says -1."""
    bounds = {
        PatchType.LOCAL: -1 if config.site == "complete" else config.window - 1,
        PatchType.INSTRUCTION: config.num_kept + config.num_anchors,
        PatchType.RETRIEVAL: config.retrieval_degree,
    }
    return {kind: bounds.get(kind, 1) for kind in config.covers}


def _reads(degree: int, context: int) -> int:
    """Sum over positions t of min(t, degree); of t where there is no bound."""
    bound = context - 1 if degree < 0 else min(degree, context - 1)
    return bound * (bound + 1) // 2 + (context - 1 - bound) * bound


def edges(config: SheafStateConfig, context: int) -> int:
    """Most relations of all layers over a context: linear in it but for the complete site."""
    bounds = degrees(config)
    return config.num_layers * sum(n * _reads(bounds[kind], context) for kind, n in config.covers.items())


def _reading_flops(config: SheafStateConfig, kind: PatchType) -> int:
    """Operations that one relation of a transported type costs: its logit and its share of the value."""
    key = config.d_address if kind is PatchType.RETRIEVAL else config.d_head
    return 2 * (key + config.d_head)


def _fixed_flops(config: SheafStateConfig) -> int:
    """Operations of one layer for one token that do not depend on what it reads."""
    _, used = _linear(config)
    covers, width = config.covers, config.d_head
    natural = sum(n for kind, n in _heads(config, Reader.DYNAMICS).items() if kind is not PatchType.MEMORY)
    flops = 2 * used + 2 * config.d_conv * _convolved(config)
    flops += 5 * natural * config.d_state * width + 5 * covers.get(PatchType.MEMORY, 0) * width
    flops += config.num_maps * config.d_address * (2 * config.d_model + config.num_addresses)
    return flops + 2 * _router(config)


def cost(config: SheafStateConfig, context: int, dtype_bytes: int = 4) -> Cost:
    """Edges, operations and state of a context.

    Args:
        config: the configuration.
        context: positions.
        dtype_bytes: bytes of a number in the model's dtype.

    Raises:
        InputError: no position.
    """
    if context < 1:
        raise InputError(f"context must be at least 1, not {context}")
    transported, bounds = _heads(config, Reader.TRANSPORT), degrees(config)
    readout = 2 * config.d_model * config.vocab_size
    fixed = config.num_layers * _fixed_flops(config) + readout
    # the window and the complete cover read the position itself too
    own = {PatchType.LOCAL: 1}
    reading = sum(
        n * _reading_flops(config, kind) * (_reads(bounds[kind], context) + own.get(kind, 0) * context)
        for kind, n in transported.items()
    )
    last = sum(
        n
        * _reading_flops(config, kind)
        * ((context if bounds[kind] < 0 else min(bounds[kind], context)) + own.get(kind, 0))
        for kind, n in transported.items()
    )
    flops = context * fixed + config.num_layers * reading
    return Cost(
        context=context,
        edges=edges(config, context),
        flops=flops,
        flops_per_token=flops / context,
        decode_flops=fixed + config.num_layers * last,
        state_bytes=state_bytes(config, context, dtype_bytes),
    )


def state_bytes(config: SheafStateConfig, context: int, dtype_bytes: int = 4) -> int:
    """Bytes carried while decoding one row; they depend on the context in the complete site alone."""
    covers, width, wide = config.covers, config.d_head, max(WIDE, dtype_bytes)
    local, kept, retrieval = (covers.get(k, 0) for k in (PatchType.LOCAL, PatchType.INSTRUCTION, PatchType.RETRIEVAL))
    memory = covers.get(PatchType.MEMORY, 0)
    natural = sum(_heads(config, Reader.DYNAMICS).values()) - memory
    size = (config.d_conv - 1) * _convolved(config) * dtype_bytes
    size += natural * config.d_state * width * wide + memory * config.num_addresses * width * wide
    if config.site == "complete":
        size += context * (2 * local * width * dtype_bytes + 1)
    else:
        size += 2 * config.window * local * width * dtype_bytes
    anchors = config.num_anchors
    size += kept * (config.num_kept + anchors) * (2 * width * dtype_bytes + wide)
    entry = config.d_address * wide + width * dtype_bytes + wide
    slots = config.num_addresses * config.retrieval_degree
    size += retrieval * ((slots + 1) * entry + (config.num_addresses + 1) * INTEGER)
    return config.num_layers * size + ROW_ENTRIES * INTEGER


def state_elements(config: SheafStateConfig, context: int) -> int:
    """Numbers carried while decoding one row, whatever their types: every slot, count and place is one.

    It is what sizes of state are compared by where dtypes differ. The mask of the complete site, a byte a position, is
    counted in eights.
    """
    return state_bytes(config, context, INTEGER) // INTEGER
