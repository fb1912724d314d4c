"""Laws 1 to 5 with each ablation switch on, and what each switch does by itself."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from sheafstate import SheafStateConfig, SheafStateForCausalLM, accounting
from sheafstate.nn.experts import Experts, balance_loss
from sheafstate.nn.records import Site
from sheafstate.rows import arrange
from tests.contract.readings import Reading, far, model_of, read_in_chunks, read_whole, readings
from tests.contract.test_batches import Batch, batches
from tests.contract.test_documents import Packed, packed
from tests.variants import VOCABULARY, examples, make_config, make_model, tokens

SWITCHES = ("section_values", "pairwise_maps", "expert_sections")
EXACT = 1e-9
CASES: dict[str, dict] = {name: {name: True} for name in SWITCHES} | {"all": dict.fromkeys(SWITCHES, True)}
cases = pytest.mark.parametrize("case", [*CASES, "all+ternary"])
switches = pytest.mark.parametrize("switch", SWITCHES)


def model_with(case: str) -> SheafStateForCausalLM:
    name, _, mode = case.partition("+")
    return model_of(f"mixture+{mode}", **CASES[name])


@cases
@examples(4)
@given(length=st.integers(2, 70), data=st.data())
@torch.no_grad()
def test_changing_a_token_changes_no_output_before_it(case: str, length: int, data: st.DataObject) -> None:
    model, ids = model_with(case), tokens(2, length)
    at, other = data.draw(st.integers(0, length - 1)), ids.clone()
    other[:, at] = (other[:, at] + 1) % VOCABULARY
    a, b = (model(x, use_cache=False).logits for x in (ids, other))
    assert far(a[:, :at], b[:, :at]) <= EXACT
    assert far(a[:, at], b[:, at]) > 1e-6


@cases
@examples(4)
@given(reading=readings(st.integers(1, 40) | st.sampled_from([64, 65, 130])))
def test_any_split_of_padded_and_packed_rows_gives_the_whole(case: str, reading: Reading) -> None:
    model = model_with(case)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading), reading.valid) <= EXACT


@cases
@torch.no_grad()
def test_steps_of_one_token_give_the_whole(case: str) -> None:
    reading = Reading(tokens(2, 40), None, {}, tuple(range(1, 41)), False)
    model = model_with(case)
    assert far(read_in_chunks(model, reading)[0], read_whole(model, reading)) <= EXACT


@cases
@examples(4)
@given(batch=batches(st.integers(1, 40) | st.just(65)))
@torch.no_grad()
def test_padded_rows_equal_solo_rows(case: str, batch: Batch) -> None:
    model = model_with(case)
    whole = model(batch.ids, attention_mask=batch.mask.long(), use_cache=False).logits
    for row in batch.mask.any(1).nonzero()[:, 0].tolist():
        assert far(whole[row, batch.mask[row]], model(batch.solo(row), use_cache=False).logits[0]) <= EXACT


@cases
@examples(4)
@given(text=packed())
@torch.no_grad()
def test_packed_documents_equal_solo_documents(case: str, text: Packed) -> None:
    model = model_with(case)
    whole = model(text.ids, **text.borders, use_cache=False).logits
    for mine in text.documents():
        assert far(whole[mine], model(text.ids[mine][None], use_cache=False).logits[0]) <= EXACT


@pytest.mark.parametrize("case", CASES)
def test_what_is_built_and_multiplied_is_what_is_counted(case: str) -> None:
    """Linear maps, routers and pairwise maps are the matrix products of a pass; batched ones belong to the rest."""
    config, length = make_config("mixture", **CASES[case]), 17
    model = make_model("mixture", torch.float32, **CASES[case])
    assert accounting.parameters(config).total == sum(p.numel() for p in model.parameters())
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens(1, length), use_cache=False)
    done = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    bare = make_config("mixture", num_experts=0)
    _, _, multiplied = accounting._linear(bare)
    rest = accounting._fixed_flops(bare) - 2 * multiplied
    layer = accounting._fixed_flops(config) - rest
    assert done == length * (config.num_layers * layer + 2 * config.d_model * config.vocab_size)


@switches
def test_a_switch_changes_the_model_and_is_kept_in_its_configuration(switch: str, tmp_path: Path) -> None:
    model, ids = make_model("mixture", torch.float32, **{switch: True}), tokens(1, 20)
    model.save_pretrained(tmp_path)
    loaded = SheafStateForCausalLM.from_pretrained(tmp_path).eval()
    assert getattr(loaded.config, switch) is True
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert not getattr(SheafStateConfig(), switch)
    off = {name for name, _ in make_model("mixture").named_parameters()}
    shapes = {name: p.shape for name, p in make_model("mixture").named_parameters()}
    on = dict(model.named_parameters())
    assert off <= set(on)
    assert set(on) > off or any(on[name].shape != shapes[name] for name in off)
    with pytest.raises(ValueError, match=switch):
        SheafStateConfig(**{switch: "yes"})


@switches
@pytest.mark.parametrize("fields", [{"site": "window"}, {"heads": {"local": 2}}])
def test_a_switch_with_nothing_to_act_on_changes_nothing(switch: str, fields: dict) -> None:
    a, b = (make_model("mixture", num_experts=0, **fields, **{switch: on}) for on in (False, True))
    assert [p.shape for p in a.parameters()] == [p.shape for p in b.parameters()]
    assert torch.equal(a(tokens(1, 9)).logits, b(tokens(1, 9)).logits)


def test_pairwise_maps_are_nothing_at_first_and_never_map_a_type_to_itself() -> None:
    model, ids = make_model("mixture", pairwise_maps=True), tokens(1, 20)
    maps = [block.gluing.pair_maps for block in model.model.layers]
    with torch.no_grad():
        [m.zero_() for m in maps]
        zero = model(ids).logits
        off = make_model("mixture")
        off.load_state_dict({k: v for k, v in model.state_dict().items() if "pair_maps" not in k})
        torch.testing.assert_close(off(ids).logits, zero, rtol=0, atol=0)
    model(ids, labels=ids).loss.backward()
    side = model.config.d_head
    for found in (m.grad.unflatten(0, (-1, side)).unflatten(2, (-1, side)).abs().sum((1, 3)) for m in maps):
        own = torch.eye(len(found), dtype=torch.bool)
        assert found[own].max() == 0
        assert found[~own].min() > 0


@pytest.mark.parametrize("quantization", ["none", "int4"])
def test_experts_leave_a_section_without_mass_at_0(quantization: str) -> None:
    experts = make_model("mixture", expert_sections=True, boundaries=False, quantization=quantization)
    part: Experts = experts.model.layers[0].experts
    y = torch.randn(2, 5, experts.config.num_heads, experts.config.d_head, dtype=torch.float64)
    y[:, :, -2] = 0
    rows = arrange((2, 5), y.device, None, None, None, None, 0).rows
    refined, load = part.refine(y, Site(rows))
    assert refined[:, :, -2].abs().max() == 0
    assert (refined - y)[:, :, :-2].abs().amax(-1).min() > 0
    assert load.choice.shape == y.shape[:3]
    even = torch.arange(30).reshape(2, 5, 3) % 3
    flat = torch.full((2, 5, 3, 3), 1 / 3, dtype=torch.float64)
    assert balance_loss(even, flat, rows).item() == pytest.approx(10.0)
