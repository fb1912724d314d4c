"""What a training step takes on several devices: time, memory and traffic, from the configuration alone.

Nothing of it is measured. Operations and parameters are those of ``accounting``; what a layer keeps for its backward
pass is counted on a layer that is run without numbers. The traffic is that of ring collectives (Rajbhandari et al.,
"ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020).
"""

from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from sheafstate.accounting import cost, parameters
from sheafstate.config import SheafStateConfig
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM

__all__ = ["DEVICES", "Device", "TrainingCost", "depth_of", "saved_bytes", "training_cost"]

FORWARD_AND_BACKWARD = 3
"""Operations of a training step over those of its forward pass; one more where layers are run again."""

STATE_BYTES = 16
"""Bytes a parameter: itself, its gradient and AdamW's two moments, all in float32."""

WIDE, HALF = 4, 2
"""Bytes of a number in float32 and in bfloat16."""

COUNTED = 512
"""Positions on which saved bytes are counted; they are linear in the positions from here on."""

DEEPEST = 256


@dataclass(frozen=True)
class Device:
    """What a device can do.

    Attributes:
        tflops: dense bfloat16 operations a second at its peak, in units of 10^12.
        gib: its memory.
        gbytes: bytes a second that it sends to others of its machine, in units of 10^9.
    """

    tflops: float
    gib: float
    gbytes: float


DEVICES = {
    "a100": Device(312, 80, 300),
    "h100": Device(989, 80, 450),
    "h200": Device(989, 141, 450),
}
"""By their vendor's data sheets (SXM; NVLink, one direction)."""


@dataclass(frozen=True)
class TrainingCost:
    """A training step on every one of several devices.

    Attributes:
        parameters: trained numbers.
        tokens: of a step, on one device.
        compute_seconds: operations over the share of the peak that is reached.
        ddp_tokens_per_second, fsdp_tokens_per_second: of one device, where traffic hides behind the operations.
        ddp_bytes, fsdp_bytes: most memory of a device with whole copies, and with everything sharded.
        activation_bytes: of these, what is kept for the backward pass, the logits and their gradient included.
        ddp_traffic, fsdp_traffic: bytes that a device sends in a step.
    """

    parameters: int
    tokens: int
    compute_seconds: float
    ddp_tokens_per_second: float
    fsdp_tokens_per_second: float
    ddp_bytes: int
    fsdp_bytes: int
    activation_bytes: int
    ddp_traffic: int
    fsdp_traffic: int


def depth_of(wanted: float) -> int:
    """The dial (number of layers) whose parameters without embeddings are nearest to a number.

    Raises:
        InputError: no depth comes within a third of it.
    """

    def distance(depth: int) -> float:
        return abs(parameters(SheafStateConfig.from_depth(depth)).non_embedding / wanted - 1)

    best = min(range(1, DEEPEST), key=distance) if wanted >= 1 else 0
    if not best or distance(best) > 1 / 3:
        raise InputError(f"no depth of the presets' dial has about {wanted:,.0f} parameters")
    return best


def saved_bytes(config: SheafStateConfig) -> float:
    """Bytes a token that one layer keeps for its backward pass under bfloat16 autocast.

    A model of one layer and one of two are run on tensors without numbers; the difference is a layer's. Which expert
    serves which token needs numbers: the expert of a token counts as so much more of the shared feed-forward part.
    """
    fields = config.to_dict() | {"vocab_size": 2, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if config.num_experts:
        fields |= {"num_experts": 0, "d_ff": config.d_ff + config.d_expert}
    one, two = (_saved(SheafStateConfig(**(fields | {"num_layers": layers}))) for layers in (1, 2))
    return (two - one) / COUNTED


def _saved(config: SheafStateConfig) -> int:
    """Bytes of every storage that the backward pass of a model's layers needs, parameters apart."""
    kept: dict[int, torch.UntypedStorage] = {}
    with FakeTensorMode():
        model = SheafStateForCausalLM(config).train()
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                kept[storage._cdata] = storage
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu"):
            model.model(input_ids=torch.zeros(1, COUNTED, dtype=torch.long), use_cache=False)
        return sum(storage.nbytes() for storage in kept.values())


def training_cost(
    config: SheafStateConfig,
    context: int,
    device: Device,
    devices: int = 1,
    rows: int = 1,
    utilization: float = 0.4,
    checkpointing: bool = False,
) -> TrainingCost:
    """A step of AdamW under bfloat16 autocast, every device with rows of its own.

    Args:
        config: the model.
        context: positions of a row.
        device: what each device can do.
        devices: how many there are.
        rows: of a device in a step.
        utilization: share of the peak that the operations reach; an assumption, not a measurement.
        checkpointing: whether layers are run again in the backward pass rather than kept.

    Raises:
        InputError: a number is impossible, or the site is the complete one, whose memory is not linear.
    """
    if devices < 1 or rows < 1:
        raise InputError(f"devices and rows must be at least 1, not {devices} and {rows}")
    if not 0 < utilization <= 1:
        raise InputError(f"utilization must be above 0 and at most 1, not {utilization}")
    if config.site == "complete":
        raise InputError("what the complete site keeps for training is not counted; choose another site")
    count, tokens = parameters(config).total, rows * context
    passes = FORWARD_AND_BACKWARD + (1 if checkpointing else 0)
    seconds = passes * rows * cost(config, context, HALF).flops / (device.tflops * 1e12 * utilization)
    activations = _activation_bytes(config, tokens, checkpointing)
    layer = (count - parameters(config).embedding) // config.num_layers
    others = (devices - 1) / devices
    # gradients are reduced in float32; parameters are gathered in bfloat16, forward and backward
    ddp, fsdp = int(2 * others * count * WIDE), int(others * count * (2 * HALF + WIDE))
    whole = max(layer, parameters(config).embedding)
    return TrainingCost(
        parameters=count,
        tokens=tokens,
        compute_seconds=seconds,
        ddp_tokens_per_second=tokens / max(seconds, ddp / (device.gbytes * 1e9)),
        fsdp_tokens_per_second=tokens / max(seconds, fsdp / (device.gbytes * 1e9)),
        ddp_bytes=STATE_BYTES * count + activations,
        # two parts whole at once, one in use and one on its way, and the gradient of one
        fsdp_bytes=-(-STATE_BYTES * count // devices) + whole * (2 * HALF + WIDE) + activations,
        activation_bytes=activations,
        ddp_traffic=ddp,
        fsdp_traffic=fsdp,
    )


def _activation_bytes(config: SheafStateConfig, tokens: int, checkpointing: bool) -> int:
    """What the backward pass needs: all layers', or their inputs and one layer's; logits and their slope."""
    layer, entry = saved_bytes(config), config.d_model * WIDE
    layers = config.num_layers * entry + layer if checkpointing else config.num_layers * layer
    return int(tokens * (layers + entry + 2 * config.vocab_size * WIDE))
