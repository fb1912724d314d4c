"""Law 6: each type alone equals an independent program. That the complete site is a Llama is held by
``tests/reference/test_peers_llama.py``.
"""

import math

import pytest
import torch

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.nn.records import split_channels
from sheafstate.ops.address import assign_addresses_reference, unit_vectors
from tests.variants import disturb, tokens


def one_type(kind: str, **changes: object) -> tuple[torch.nn.Module, SheafStateConfig]:
    """The first block of a model with one plain head of one type and no experts or shared map."""
    config = SheafStateConfig(
        d_model=12,
        num_layers=1,
        heads={kind: 1},
        d_head=6,
        d_state=5,
        d_conv=1,
        gluing="plain",
        output_gate=False,
        num_experts=0,
        d_ff=0,
        d_address=4,
        num_addresses=4,
        retrieval_degree=3,
        **changes,
    )
    torch.manual_seed(3)
    model = SheafStateForCausalLM(config).double().eval()
    disturb(model)
    return model.model.layers[0], model


def run(block: torch.nn.Module, model: torch.nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The vector that a block adds to the residual stream, and the projections it made it from."""
    caught = []
    handle = block.gluing.register_forward_hook(lambda _m, _i, output: caught.append(output[0]))
    with torch.no_grad():
        projected = torch.nn.functional.linear(block.norm(model.model.embed_tokens(ids)), block.in_proj.weight)
        model(ids, use_cache=False)
    handle.remove()
    return caught[0], projected


@pytest.mark.parametrize("kind", ["syntax", "sentence", "topic", "workspace"])
@torch.no_grad()
def test_an_interval_type_alone_is_a_state_space_model(kind) -> None:
    block, model = one_type(kind)
    ids = tokens(1, 40)
    y, projected = run(block, model, ids)
    part = block.dynamics
    channels = split_channels(block.narrow | block.wide, projected[0])
    mixed = torch.nn.functional.silu(channels["convolved"] * part.conv_weight[:, 0] + part.conv_bias)
    x, B, C = mixed.split([6, 5, 5], -1)
    dt = torch.nn.functional.softplus(channels["dt"][:, 0] + part.dt_bias)
    state, outputs = torch.zeros(5, 6, dtype=torch.float64), []
    for t in range(40):
        a = torch.exp(-dt[t] * part.A_log[0].exp())
        if kind != "workspace":
            a = a * (1 - torch.sigmoid(channels["boundary"][t, 0] + block.site.boundary_bias[0]))
        state = a * state + dt[t] * torch.outer(B[t], x[t])
        outputs.append(C[t] @ state + part.D[0] * x[t])
    expected = torch.nn.functional.linear(torch.stack(outputs), block.gluing.out_proj.weight)
    torch.testing.assert_close(y[0], expected, rtol=0, atol=1e-9)


def address_parts(block: torch.nn.Module, model: torch.nn.Module, ids: torch.Tensor, projected: torch.Tensor) -> tuple:
    channels = split_channels(block.narrow | block.wide, projected[0])
    z = unit_vectors(block.norm(model.model.embed_tokens(ids))[0] @ block.site.projection.T)
    address, unity = assign_addresses_reference(z[None, None], block.site.directions)
    return channels, z, address[0, 0].tolist(), unity[0, 0]


@torch.no_grad()
def test_memory_alone_is_one_running_vector_per_address() -> None:
    block, model = one_type("memory")
    ids = tokens(1, 50)
    y, projected = run(block, model, ids)
    part = block.dynamics
    channels, _, address, unity = address_parts(block, model, ids, projected)
    x = torch.nn.functional.silu(channels["convolved"] * part.conv_weight[:, 0] + part.conv_bias)
    dt = torch.nn.functional.softplus(channels["dt"][:, 0] + part.dt_bias) * unity
    vectors, outputs = torch.zeros(4, 6, dtype=torch.float64), []
    for t, k in enumerate(address):
        vectors[k] = torch.exp(-dt[t] * part.A_log[0].exp()) * vectors[k] + dt[t] * x[t]
        outputs.append(unity[t] * vectors[k] + part.D[0] * x[t])
    expected = torch.nn.functional.linear(torch.stack(outputs), block.gluing.out_proj.weight)
    torch.testing.assert_close(y[0], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("write_licence", [False, True])
@pytest.mark.parametrize("recency", [False, True])
@torch.no_grad()
def test_retrieval_alone_is_hashed_attention_to_what_followed(write_licence: bool, recency: bool) -> None:
    block, model = one_type("retrieval", write_licence=write_licence, retrieval_recency=recency)
    ids = tokens(1, 60)
    y, projected = run(block, model, ids)
    part = block.transport.readers["retrieval"]
    channels, z, address, unity = address_parts(block, model, ids, projected)
    v, mu = channels["retrieval"], part.shift[0]
    licence = torch.ones(60, dtype=torch.float64)
    if write_licence:
        licence = torch.relu(2 * torch.sigmoid(channels["write"][:, 0] + block.site.write_bias[0]) - 1)
    outputs = []
    for t in range(60):
        readable = [p for p in range(t) if address[p] == address[t] and licence[p] > 0][-3:]
        logits = [part.null[0]]
        for age, p in zip(range(len(readable), 0, -1), readable, strict=True):
            weight = torch.log(licence[p] * unity[p].clamp(min=1e-12) * unity[t].clamp(min=1e-12))
            weight = weight - part.slope[0] * math.log(age) if recency else weight
            logits.append(part.log_scale[0].exp() * (z[t] @ z[p]) + weight)
        shares = torch.stack(logits).softmax(0)[1:]
        values = [mu * v[p + 1] + (1 - mu) * v[p] for p in readable]
        outputs.append(sum((s * value for s, value in zip(shares, values, strict=True)), torch.zeros(6).double()))
    assert sum(len(o.nonzero()) > 0 for o in outputs) > 20
    expected = torch.nn.functional.linear(torch.stack(outputs), block.gluing.out_proj.weight)
    torch.testing.assert_close(y[0], expected, rtol=0, atol=1e-9)


@torch.no_grad()
def test_instruction_alone_is_attention_to_the_first_and_to_licensed_anchors() -> None:
    block, model = one_type("instruction", num_kept=2, num_anchors=3)
    ids = tokens(1, 60)
    y, projected = run(block, model, ids)
    channels = split_channels(block.narrow | block.wide, projected[0])
    q, k, v = channels["instruction"].chunk(3, -1)
    licence = torch.relu(2 * torch.sigmoid(channels["anchor"][:, 0] + block.site.anchor_bias[0]) - 1)
    outputs = []
    for t in range(60):
        anchors = [p for p in range(2, t + 1) if licence[p] > 0][-3:]
        read = [p for p in (0, 1) if p <= t] + anchors
        logits = k[read] @ q[t] / math.sqrt(6) + torch.stack(
            [licence[p].log() if p >= 2 else torch.zeros(()).double() for p in read]
        )
        outputs.append(logits.softmax(0) @ v[read])
    expected = torch.nn.functional.linear(torch.stack(outputs), block.gluing.out_proj.weight)
    torch.testing.assert_close(y[0], expected, rtol=0, atol=1e-9)
