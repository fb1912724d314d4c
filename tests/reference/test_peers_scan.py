"""The scan and independent programs of other people on the same numbers: values, gradients, a carried state.

``mambapy`` runs Mamba's recurrence with a decay per channel and state, here set to one a head; the state-space duality
of Mamba-2 is transformers' own. The Mamba-2 of ``mambapy`` needs Triton, so it is no peer on a CPU.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mambapy.mamba import MambaBlock, MambaConfig
from torch.nn import functional
from transformers import Mamba2Config
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer, mamba2_chunk_scan

from sheafstate.ops.scan import causal_convolution, selective_scan
from tests.variants import examples

HEADS, WIDTH, STATE = 3, 4, 5
LENGTHS = st.integers(1, 200)


def numbers(length: int, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Inputs of a scan, as leaves; rates A are those of the heads."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    made = {
        "x": normal(2, length, HEADS, WIDTH),
        "dt": functional.softplus(normal(2, length, HEADS) - 1),
        "A": -normal(HEADS).exp(),
        "B": normal(2, length, STATE),
        "C": normal(2, length, STATE),
    }
    return {name: tensor.requires_grad_() for name, tensor in made.items()}


def ours(made: dict[str, torch.Tensor], state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    start = torch.zeros(made["dt"].shape[:2], dtype=torch.bool)
    return selective_scan(made["x"], made["dt"], made["dt"] * made["A"], made["B"], made["C"], start, state)


def gradients(output: torch.Tensor, made: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return list(torch.autograd.grad((output * weight).sum(), list(made.values())))


@examples(12)
@given(length=LENGTHS, seed=st.integers(0, 999), parallel=st.booleans())
def test_the_scan_is_that_of_mambapy(length, seed, parallel) -> None:
    made = numbers(length, seed, torch.float64)
    block = MambaBlock(MambaConfig(d_model=HEADS * WIDTH // 2, n_layers=1, d_state=STATE))
    scan = block.selective_scan if parallel else block.selective_scan_seq
    per_channel = made["A"].repeat_interleave(WIDTH)[:, None].expand(-1, STATE)
    theirs = scan(
        made["x"].flatten(2),
        made["dt"].repeat_interleave(WIDTH, -1),
        per_channel,
        made["B"],
        made["C"],
        torch.zeros(HEADS * WIDTH, dtype=torch.float64),
    ).unflatten(-1, (HEADS, WIDTH))
    mine = ours(made)[0]
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)
    for a, b in zip(gradients(mine, made), gradients(theirs, made), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8)


@examples(12)
@given(length=LENGTHS, cut=st.floats(0, 1), chunk=st.sampled_from([1, 7, 64]), seed=st.integers(0, 999))
def test_the_scan_is_that_of_mamba_2(length, cut, chunk, seed) -> None:
    """In two calls with the state carried over, cut anywhere; Mamba-2 computes in float32."""
    made = numbers(length, seed, torch.float32)
    border = round(cut * length)
    parts = [part for part in (slice(0, border), slice(border, length)) if part.stop > part.start]
    mine, theirs, state, their_state = [], [], None, None
    for part in parts:
        piece = {name: tensor if name == "A" else tensor[:, part] for name, tensor in made.items()}
        y, state = ours(piece, state)
        z, their_state = mamba2_chunk_scan(
            piece["x"],
            piece["dt"],
            piece["A"],
            piece["B"][:, :, None],
            piece["C"][:, :, None],
            chunk,
            initial_states=their_state,
            return_final_states=True,
        )
        mine.append(y)
        theirs.append(z)
    torch.testing.assert_close(state, their_state.transpose(-1, -2), rtol=1e-4, atol=1e-4)
    a, b = torch.cat(mine, 1), torch.cat(theirs, 1)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    for x, y in zip(gradients(a, made), gradients(b, made), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 200])
def test_a_whole_mixer_is_that_of_mamba_2(length) -> None:
    """Projection, convolution, step sizes, scan, skip and gate, put together from our parts."""
    config = Mamba2Config(
        hidden_size=6, num_heads=HEADS, head_dim=WIDTH, expand=2, state_size=STATE, n_groups=1, num_hidden_layers=1
    )
    torch.manual_seed(length)
    mixer = Mamba2Mixer(config, 0).eval()
    with torch.no_grad():
        for name in ("dt_bias", "A_log", "D"):
            getattr(mixer, name).normal_()
    u = torch.randn(2, length, 6, requires_grad=True)
    inner = HEADS * WIDTH
    gate, convolved, dt = mixer.in_proj(u).split([inner, inner + 2 * STATE, HEADS], -1)
    documents = torch.zeros(2, length, dtype=torch.long)
    tail = torch.zeros(2, config.conv_kernel - 1, convolved.shape[-1])
    mixed = causal_convolution(convolved, mixer.conv1d.weight[:, 0], mixer.conv1d.bias, documents, tail)
    x, B, C = functional.silu(mixed).split([inner, STATE, STATE], -1)
    x, dt = x.unflatten(-1, (HEADS, WIDTH)), functional.softplus(dt + mixer.dt_bias)
    y = ours({"x": x, "dt": dt, "A": -mixer.A_log.exp(), "B": B, "C": C})[0] + mixer.D[:, None] * x
    mine, theirs = mixer.out_proj(mixer.norm(y.flatten(2), gate)), mixer(u)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    leaves = {"u": u} | dict(mixer.named_parameters())
    for (name, a), b in zip(zip(leaves, gradients(mine, leaves), strict=True), gradients(theirs, leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4, msg=name)
