"""What training takes: the counted layer against a real one, and sums that can be done by hand."""

import pytest
import torch

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.accounting import cost, parameters
from sheafstate.errors import InputError
from sheafstate.training.cost import DEVICES, Device, depth_of, saved_bytes, training_cost

SMALL = {"d_model": 64, "d_ff": 32, "d_head": 16, "vocab_size": 2}


def _really_saved(config: SheafStateConfig, length: int) -> int:
    """Bytes that a real forward pass keeps, parameters apart."""
    model = SheafStateForCausalLM(config).train()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    ids = torch.zeros(1, length, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu"):
        model.model(input_ids=ids, use_cache=False)
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("fields", [SMALL, SMALL | {"heads": {"local": 4}}, SMALL | {"num_experts": 2, "d_expert": 8}])
def test_a_counted_layer_is_a_real_one(fields: dict) -> None:
    """The real one may share a few more storages than one without numbers does."""
    length = 512
    one, two = (_really_saved(SheafStateConfig(**fields, num_layers=layers), length) for layers in (1, 2))
    assert saved_bytes(SheafStateConfig(**fields)) == pytest.approx((two - one) / length, rel=0.12)


@pytest.mark.parametrize("wanted", [0.93e6, 11.7e6, 110e6, 1.3e9, 7e9])
def test_the_dial_meets_a_size(wanted: float) -> None:
    assert parameters(SheafStateConfig.from_depth(depth_of(wanted))).non_embedding == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("wanted", [0, 10, 1e15, float("nan"), float("inf")])
def test_a_size_beyond_the_dial_is_refused(wanted: float) -> None:
    with pytest.raises(InputError):
        depth_of(wanted)


def test_one_device_sends_nothing_and_shards_nothing() -> None:
    config = SheafStateConfig(**SMALL)
    alone = training_cost(config, 512, DEVICES["h100"])
    assert alone.ddp_traffic == alone.fsdp_traffic == 0
    assert alone.ddp_bytes == 16 * parameters(config).total + alone.activation_bytes
    assert alone.compute_seconds == pytest.approx(3 * cost(config, 512).flops / (989e12 * 0.4))


def test_more_devices_share_parameters_and_not_activations() -> None:
    config = SheafStateConfig.from_preset("small")
    few, many = (training_cost(config, 2048, DEVICES["a100"], devices=n) for n in (2, 64))
    assert many.ddp_bytes == few.ddp_bytes
    assert many.activation_bytes == few.activation_bytes
    assert few.fsdp_bytes - many.fsdp_bytes == pytest.approx(16 * parameters(config).total * (1 / 2 - 1 / 64), abs=2)
    # a ring of n sends (n - 1) / n of the tensor, twice for a sum that all have
    assert many.ddp_traffic == pytest.approx(2 * 63 / 64 * 4 * parameters(config).total, abs=1)


def test_a_slow_line_holds_the_step_back() -> None:
    config = SheafStateConfig(**SMALL)
    slow = training_cost(config, 512, Device(1000, 80, 1e-3), devices=2)
    assert slow.ddp_tokens_per_second == pytest.approx(512 * 1e6 / slow.ddp_traffic)


def test_running_layers_again_takes_time_and_saves_memory() -> None:
    config = SheafStateConfig.from_preset("small")
    kept, again = (training_cost(config, 8192, DEVICES["h100"], checkpointing=c) for c in (False, True))
    assert again.compute_seconds == pytest.approx(kept.compute_seconds * 4 / 3)
    assert again.activation_bytes < kept.activation_bytes / 3


@pytest.mark.parametrize(
    "change", [{"devices": 0}, {"rows": 0}, {"utilization": 0}, {"utilization": 1.5}, {"utilization": float("nan")}]
)
def test_what_is_impossible_is_refused(change: dict) -> None:
    with pytest.raises(InputError):
        training_cost(SheafStateConfig(**SMALL), 512, DEVICES["h100"], **change)


def test_the_complete_site_is_refused() -> None:
    with pytest.raises(InputError, match="complete"):
        training_cost(SheafStateConfig(**SMALL, site="complete"), 512, DEVICES["h100"])
