"""Promise 11: half precision, large inputs and extreme decays stay finite, and close to float64."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from sheafstate.ops.banded import banded_softmax
from sheafstate.ops.scan import selective_scan
from tests.variants import VARIANTS, VOCABULARY, examples, make_config, make_model, tokens

from .promises import Mutation, contract
from .readings import CASES, per_case

HALF = (torch.bfloat16, torch.float16)
WEAKEST, STRONGEST = 1e-6, 80.0
"""Decays per position, as minus their logarithms."""

OVERFLOWING_MASK = Mutation(
    "ops/scan.py",
    "return gaps.add_(mask[:, :, None]).exp_()",
    "return gaps.exp() * (mask == 0)[:, :, None]",
    "decays between positions that are no pair overflow before they are masked",
)
LATE_SIGMOID = Mutation(
    "nn/site.py",
    'log_carry = functional.logsigmoid(-self._wide(channels["boundary"], self.boundary_bias))',
    'log_carry = torch.log(1 - torch.sigmoid(self._wide(channels["boundary"], self.boundary_bias)))',
    "a certain boundary has an infinite logarithm",
)
BARE_SOFTMAX = Mutation(
    "ops/banded.py",
    "weights = logits.sub_(largest).exp_()",
    "weights = logits.sub_(0 * largest).exp_()",
    "a softmax overflows",
)
NO_DIRECTION = Mutation(
    "ops/address.py",
    "return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-6)",
    "return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)",
    "a vector of zeros has no address",
)
DIVIDED_BY_NOTHING = Mutation(
    "nn/gluing.py",
    "some = mass > SMALLEST_MASS",
    "some = mass >= 0",
    "a head that reads nothing is divided by its mass",
)
NARROW_SCAN = Mutation(
    "ops/scan.py",
    "x, dt, log_decay, B, C = (tensor.to(dtype) for tensor in (x, dt, log_decay, B, C))",
    "x, dt, log_decay, B, C = (tensor.to(torch.bfloat16).to(dtype) for tensor in (x, dt, log_decay, B, C))",
    "the scan rounds its inputs to bfloat16",
)


def train(case: str, steps: int, dtype: torch.dtype) -> list[float]:
    """Losses of a run in half precision on text with a pattern."""
    torch.manual_seed(0)
    name, _, mode = case.partition("+")
    model = SheafStateForCausalLM(make_config(name, quantization=mode or "none")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        ids = torch.arange(40).remainder(7).add(step % 5).expand(2, -1) % VOCABULARY
        with torch.autocast("cpu", dtype=dtype):
            loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    return losses


@contract(11, breaks=DIVIDED_BY_NOTHING)
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("case", ["mixture", "mixture+int4", "complete"])
def test_training_in_half_precision_stays_finite(case: str, dtype: torch.dtype) -> None:
    losses = train(case, 40, dtype)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.slow
@contract(11)
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_long_training_in_half_precision_stays_finite(case: str, dtype: torch.dtype) -> None:
    losses = train(case, 300, dtype)
    assert losses[-1] < 0.5 * losses[0]


@contract(11, breaks=NO_DIRECTION)
@pytest.mark.parametrize("case", CASES)
@per_case(1)
@given(
    scale=st.sampled_from([1e-30, 1e-4, 1.0, 1e2]),
    dtype=st.sampled_from(HALF),
    cast=st.booleans(),
    length=st.sampled_from([70, 1, 2, 64]) | st.integers(1, 90),
    seed=st.integers(0, 2**16),
)
def test_inputs_of_any_size_stay_finite(
    case: str, scale: float, dtype: torch.dtype, cast: bool, length: int, seed: int
) -> None:
    """Forward and backward, under autocast and in a model of half precision: rows of 1e4, of nothing, of any size."""
    name, _, mode = case.partition("+")
    model = make_model(name, dtype if cast else torch.float32, quantization=mode or "none").train()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, length, model.config.d_model, generator=generator)
    # float16 does not hold a norm's gradient at zero
    least = 0.0 if dtype is torch.bfloat16 else 1.0
    factors = torch.tensor([1e4, least, max(scale, least)])[:, None, None]
    scaled = torch.rand(3, length, 1, generator=generator) < (0.1 if seed % 2 else 1.0)
    x = torch.where(scaled, x * factors, x).to(dtype if cast else torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=not cast):
        out = model(inputs_embeds=x, labels=tokens(3, length))
    out.loss.backward()
    assert out.logits.dtype == torch.float32
    assert out.logits.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@contract(11)
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_half_precision_is_close_to_float64(name: str, dtype: torch.dtype) -> None:
    """The mean likelihood of 256 tokens moves by less than 3 %."""
    ids, model = tokens(4, 64), make_model(name, torch.float32)
    with torch.no_grad():
        exact = model.double()(ids, labels=ids).loss
        with torch.autocast("cpu", dtype=dtype):
            near = model.float()(ids, labels=ids).loss
    assert near.item() == pytest.approx(exact.item(), rel=0.03)


def decays(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Logarithms of decays, as many weak as strong ones."""
    low, high = math.log(WEAKEST), math.log(STRONGEST)
    return -torch.exp(low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64))


@contract(11, breaks=(OVERFLOWING_MASK, NARROW_SCAN))
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@examples(3)
@given(kind=st.sampled_from(["each position", "each head", "weakest", "strongest"]), seed=st.integers(0, 2**16))
def test_a_scan_over_any_decays_is_close_to_float64(dtype: torch.dtype, kind: str, seed: int) -> None:
    """Over 2,048 positions, in values and gradients; half precision holds for inputs, not for what is summed."""
    generator, length = torch.Generator().manual_seed(seed), 2048
    log_decay = decays((1, length if kind == "each position" else 1, 3), generator).expand(1, length, 3)
    if kind in ("weakest", "strongest"):
        log_decay = torch.full_like(log_decay, -WEAKEST if kind == "weakest" else -STRONGEST)
    shapes = ((1, length, 3, 5), (1, length, 3), (1, length, 4), (1, length, 4), (1, 3, 4, 5))
    x, dt, B, C, state = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    start = torch.rand(1, length, generator=generator) < 0.002
    rounded = [tensor.to(dtype) for tensor in (x, dt.abs(), log_decay, B, C, state)]
    results = []
    for wide in (dtype, torch.float64):
        leaves = [tensor.to(wide).requires_grad_() for tensor in rounded]
        outputs = selective_scan(*leaves[:5], start, leaves[5])
        weights = torch.cos(torch.arange(outputs[0].numel(), dtype=torch.float64)).reshape(outputs[0].shape)
        total = (outputs[0].double() * weights).sum() + outputs[1].double().sum()
        results.append([*outputs, *torch.autograd.grad(total, leaves)])
    for index, (near, exact) in enumerate(zip(*results, strict=True)):
        assert near.isfinite().all()
        bound = 1e-4 if index < 2 or dtype is torch.float32 else 2 * torch.finfo(dtype).eps
        assert (near - exact).abs().max() <= bound * (1e-30 + exact.abs().max())


@contract(11, breaks=LATE_SIGMOID)
@pytest.mark.parametrize("name", ["syntax", "sentence", "topic", "workspace", "memory"])
@per_case(1, 5)
@given(
    rates=st.lists(st.floats(math.log(WEAKEST), math.log(STRONGEST)), min_size=4, max_size=4),
    boundary=st.sampled_from([80.0, -4.0, 4.0, -80.0]),
)
def test_a_model_of_any_decays_is_close_to_float64(name: str, rates: list[float], boundary: float) -> None:
    """Step sizes of one and decay rates such that the states keep everything or nothing of 2,048 tokens."""
    ids, results = tokens(1, 2048), []
    for dtype in (torch.float32, torch.float64):
        model = make_model(name, torch.float32, num_experts=0).to(dtype).train()
        with torch.no_grad():
            for index, layer in enumerate(model.model.layers):
                layer.dynamics.A_log.copy_(torch.tensor(rates[2 * index : 2 * index + 2]))
                layer.dynamics.dt_bias.fill_(0.54)
                if name not in ("workspace", "memory"):
                    layer.site.boundary_bias.fill_(boundary)
        logits = model(ids).logits
        logits.square().mean().backward()
        results.append((logits, [p.grad for p in model.parameters() if p.grad is not None]))
    (near, gradients), (exact, exact_gradients) = results
    assert near.isfinite().all()
    assert all(g.isfinite().all() for g in gradients)
    if name != "memory":  # an address may change where two scores are equal in single precision
        assert (near - exact).abs().max() <= 1e-3 * exact.abs().max()
        for a, b in zip(gradients, exact_gradients, strict=True):
            assert (a - b).abs().max() <= 1e-2 * (1e-6 + b.abs().max())


@contract(11, breaks=BARE_SOFTMAX)
@examples(10)
@given(scale=st.sampled_from([1e-4, 1.0, 1e2, 1e4]), seed=st.integers(0, 2**16))
def test_a_softmax_of_any_logits_is_close_to_float64(scale: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(2, 70, 4, generator=generator) for _ in range(3)]
    stop = torch.arange(1, 71).expand(2, -1)
    first = torch.zeros(2, 70, dtype=torch.long)
    results = []
    for dtype in (torch.float32, torch.float64):
        q, k, v = (tensor.to(dtype).requires_grad_() for tensor in tensors)
        output, normaliser, _ = banded_softmax(q * scale, k, v, stop, first, 9)
        total = output.square().sum() + normaliser.sum() / (1 + scale)
        results.append([output, normaliser, *torch.autograd.grad(total, (q, k, v))])
    for near, exact in zip(*results, strict=True):
        assert near.isfinite().all()
        # a logit of this size is rounded by about 1e-6 of the scale, and a weight is as far off as its logits
        assert (near - exact).abs().max() <= (1e-5 + 5e-6 * scale) * (1 + exact.abs().max())
