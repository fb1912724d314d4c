"""Law 5: bounded degree; and parameters, edges, operations and state bytes equal to the formulas of accounting.py."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from sheafstate import SheafStateConfig, SheafStateForCausalLM, accounting
from sheafstate.config import GLUINGS, PRESETS, SITES
from sheafstate.patches import HEAD_TYPES
from tests.variants import VARIANTS, examples, make_config, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)


@st.composite
def configurations(draw: st.DrawFn) -> SheafStateConfig:
    number, switch = st.integers(1, 5), st.booleans()
    heads = {str(kind): draw(st.integers(0, 2)) for kind in HEAD_TYPES}
    if not sum(heads.values()):
        heads["local"] = 1
    sizes = (
        "vocab_size d_model num_layers d_state d_conv window num_kept num_anchors retrieval_degree d_address d_expert"
    )
    switches = "output_gate write_licence retrieval_recency tie_word_embeddings"
    return SheafStateConfig(
        heads=heads,
        d_head=2 * draw(number),
        num_addresses=2 * draw(number),
        num_experts=draw(st.integers(0, 3)),
        d_ff=draw(st.integers(0, 5)),
        gluing=draw(st.sampled_from(GLUINGS)),
        site=draw(st.sampled_from(SITES)),
        **{name: draw(number) for name in sizes.split()},
        **{name: draw(switch) for name in switches.split()},
    )


@given(configurations())
def test_parameters_equal_the_formula(config) -> None:
    model, counted = SheafStateForCausalLM(config), accounting.parameters(config)
    assert counted.total == sum(p.numel() for p in model.parameters())
    embeddings = {id(p): p.numel() for p in (model.get_input_embeddings().weight, model.lm_head.weight)}
    assert counted.embedding == sum(embeddings.values())
    per_expert = 3 * config.d_model * config.d_expert * config.num_layers if config.num_experts else 0
    assert counted.non_embedding - counted.active == max(config.num_experts - 1, 0) * per_expert


@given(configurations(), st.integers(1, 12), st.integers(1, 3))
def test_state_bytes_equal_the_formula(config, length, rows) -> None:
    model = SheafStateForCausalLM(config).eval()
    with torch.no_grad():
        cache = model(torch.zeros(rows, length, dtype=torch.long), use_cache=True).cache
    assert cache.num_bytes() == rows * accounting.state_bytes(config, length)


@names
def test_no_position_has_more_edges_than_its_degree(name) -> None:
    config, length = make_config(name), 60
    model = make_model(name)
    with torch.no_grad():
        layers = model(tokens(2, length), output_site=True, use_cache=False).site
    bounds = accounting.degrees(config)
    listed = sum(len(edges.later) for layer in layers for edges in layer.edges[:1])
    assert listed <= accounting.edges(config, length)
    for layer in layers:
        for edges in layer.edges:
            assert (edges.earlier < edges.later).all()
            for kind, bound in bounds.items():
                mine = edges.types == edges.names.index(kind)
                key = edges.later[mine] * 1000 + edges.heads[mine]
                most = np.unique(key, return_counts=True)[1].max(initial=0)
                assert most <= (length if bound < 0 else bound)
    if name in ("local", "syntax", "workspace", "complete", "window"):
        assert listed == accounting.edges(config, length)


@names
def test_linear_maps_do_the_operations_counted(name) -> None:
    config = make_config(name, num_experts=0)
    model, length = make_model(name, torch.float32, num_experts=0), 17
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens(1, length), use_cache=False)
    done = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    _, used = accounting._linear(config)
    used += config.num_maps * config.d_address * config.d_model  # the fixed maps to address vectors
    assert done == 2 * length * (config.num_layers * used + config.d_model * config.vocab_size)


@examples(10)
@given(context=st.integers(1, 10**6))
def test_costs_are_linear_but_for_the_complete_site(context) -> None:
    sheaf, dense = SheafStateConfig(), SheafStateConfig(site="complete")
    a, b = accounting.cost(sheaf, context), accounting.cost(sheaf, 2 * context)
    assert a.state_bytes == b.state_bytes
    assert a.edges < sum(n * d for (n, d) in _degree_pairs(sheaf)) * sheaf.num_layers * context + 1
    assert 1.9 * a.flops < b.flops < 2.1 * a.flops + 1e7
    heads = sum(dense.heads.values())
    assert accounting.edges(dense, context) == dense.num_layers * heads * context * (context - 1) // 2


def _degree_pairs(config: SheafStateConfig) -> list[tuple[int, int]]:
    bounds = accounting.degrees(config)
    return [(n, bounds[kind]) for kind, n in config.covers.items()]


@pytest.mark.parametrize(("preset", "millions"), [("tiny", 0.9), ("small", 12.0), ("base", 112.0)])
def test_presets_have_the_size_they_are_named_for(preset, millions) -> None:
    counted = accounting.parameters(SheafStateConfig.from_preset(preset))
    assert abs(counted.non_embedding / 1e6 - millions) <= 0.1 * millions
    assert set(PRESETS) == {"tiny", "small", "base"}
