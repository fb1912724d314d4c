"""Promise 10: every kernel equals its plain twin in values and gradients at every length and width."""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import linear

from sheafstate import SheafStateConfig, SheafStateForCausalLM, ops
from sheafstate.errors import InputError
from sheafstate.ops import address, banded, norm, packed, product, quantize, route, scan
from sheafstate.ops import window as window_ops
from sheafstate.patches import HEAD_TYPES
from tests.variants import examples

from .promises import Mutation, contract
from .readings import far

LENGTHS = (1, 2, 3, 63, 64, 65, 1000)

LOST_REST = Mutation(
    "ops/scan.py",
    "return functional.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, pad)) if pad else tensor",
    "return functional.pad(tensor, (0, 0) * (tensor.dim() - 2) + (0, pad), value=1) if pad else tensor",
    "what fills up the last chunk of a scan is written into its state",
)
UNSURE_SUMS = Mutation(
    "ops/scan.py",
    "sums = log_decay.double().cumsum(2)",
    "sums = log_decay.float().cumsum(2)",
    "decays are summed in single precision",
)
NEXT_BLOCK = Mutation(
    "ops/banded.py",
    "base = stops[..., :1] - degree",
    "base = stops[..., :1] - degree + (stops[..., :1] > block)",
    "blocks of queries after the first miss their oldest key",
)
LATE_ANGLES = Mutation(
    "ops/banded.py",
    "rotate(queries, angles[degree - 1 : degree - 1 + block])",
    "rotate(queries, angles[:block])",
    "queries are rotated as if they were the oldest keys",
)
HALF_SLOPE = Mutation(
    "ops/norm.py",
    "inverse.pow(3)",
    "inverse.pow(2)",
    "the slope through the size of a vector is too small",
)
LONG_WINDOW = Mutation(
    "ops/window.py",
    "lower = torch.maximum(functional.pad(first, (0, missing)), stop - window)",
    "lower = torch.maximum(functional.pad(first, (0, missing)), stop - window - 1)",
    "a window reads one position more where nothing is trained",
)
FIRST_TAP = Mutation(
    "ops/scan.py",
    "documents = functional.pad(segment, (lags, 0))",
    "documents = functional.pad(segment, (lags, 0), value=-1)",
    "the convolution forgets its tail",
)
STALE_RUNS = Mutation(
    "ops/route.py",
    "return torch.empty_like(results).index_copy(0, order, results)",
    "return results.index_select(0, order)",
    "routed tokens are put back in the wrong order",
)
NEAREST = Mutation(
    "ops/address.py",
    "second = torch.maximum(others.amax(-1), -best)",
    "second = others.amax(-1).clamp(min=0)",
    "with one direction alone the margin is taken from 0 instead of the opposite",
)
CUT_OFF = Mutation(
    "ops/quantize.py",
    "codes = (weight.detach() / scale).round()",
    "codes = (weight.detach() / scale).trunc()",
    "weights are cut off instead of rounded",
)


@dataclass(frozen=True)
class Sizes:
    """Sizes of random inputs; none is a multiple of anything."""

    length: int
    rows: int
    heads: int
    width: int
    state: int
    seed: int
    share: float


Call = tuple[Callable[..., object], Callable[..., object], list[torch.Tensor]]


def random(sizes: Sizes) -> Callable[..., torch.Tensor]:
    """A maker of normal float64 tensors that take gradients."""
    generator = torch.Generator().manual_seed(sizes.seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def chosen(sizes: Sizes, *shape: int) -> torch.Tensor:
    """Booleans of which so many are true."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sizes.seed + 1)) < sizes.share


def scan_call(sizes: Sizes) -> Call:
    draw, n, rows, heads = random(sizes), sizes.length, sizes.rows, sizes.heads
    inputs = [
        draw(rows, n, heads, sizes.width),
        draw(rows, n, heads),
        draw(rows, n, heads),
        draw(rows, n, sizes.state),
        draw(rows, n, sizes.state),
        draw(rows, heads, sizes.state, sizes.width),
    ]
    start = chosen(sizes, rows, n)

    def run(function: Callable) -> Callable:
        return lambda x, dt, decay, B, C, state: function(x, dt.square(), -decay.exp(), B, C, start, state)

    return run(scan.selective_scan), run(scan.selective_scan_reference), inputs


def recurrence_call(sizes: Sizes) -> Call:
    """The scan in pieces, single positions among them, as decoding calls it."""
    _, slow, inputs = scan_call(sizes)
    start = chosen(sizes, sizes.rows, sizes.length)

    def pieces(x: torch.Tensor, dt: torch.Tensor, decay: torch.Tensor, *others: torch.Tensor) -> tuple:
        *vectors, state = others
        tensors, parts, begin = (x, dt.square(), -decay.exp(), *vectors, start), [], 0
        while begin < sizes.length:
            end = begin + (1 if begin % 3 else 1 + sizes.seed % 70)
            part, state = scan.selective_scan(*(tensor[:, begin:end] for tensor in tensors), state, chunk=64)
            parts, begin = [*parts, part], end
        return torch.cat(parts, 1), state

    return pieces, slow, inputs


def convolution_call(sizes: Sizes) -> Call:
    draw, taps = random(sizes), sizes.state
    segment, whole = chosen(sizes, sizes.rows, sizes.length).cumsum(1), sizes.seed % 3 == 0
    segment = torch.zeros_like(segment) if whole else segment
    inputs = [draw(sizes.rows, sizes.length, sizes.width), draw(sizes.width, taps), draw(sizes.width)]
    inputs.append(draw(sizes.rows, taps - 1, sizes.width))

    def run(function: Callable, segment: torch.Tensor | None) -> Callable:
        return lambda x, weight, bias, tail: function(x, weight, bias, segment, tail)

    fast = run(scan.causal_convolution, None if whole else segment)
    return fast, run(scan.causal_convolution_reference, segment), inputs


def band_call(sizes: Sizes) -> Call:
    """Random licences and patches; or, where every position is written, a rotated window."""
    draw, shape = random(sizes), (sizes.rows, sizes.length)
    rotated = sizes.seed % 2 == 0
    written = torch.ones(shape, dtype=torch.bool) if rotated else ~chosen(sizes, *shape)
    patch = chosen(sizes, *shape).flip(1).cumsum(1)
    slots, stop, first = banded.written_slots(written, patch, inclusive=rotated)
    width = 2 * sizes.width if rotated else sizes.width
    inputs = [draw(*shape, width), draw(*shape, width), draw(*shape, sizes.state), draw(*shape)]

    def run(function: Callable) -> Callable:
        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> tuple:
            k, v = (tensor.gather(1, slots[..., None].expand_as(tensor)) for tensor in (k, v))
            theta = 50.0 if rotated else None
            output, normaliser, *_ = function(q, k, v, stop, first, sizes.heads * 3, bias.gather(1, slots), theta)
            return output, normaliser.masked_fill(normaliser == -torch.inf, 0.0)

        return call

    return run(banded.banded_softmax), run(banded.banded_softmax_reference), inputs


def window_call(sizes: Sizes) -> Call:
    """Documents that begin anywhere, with or without slots of an earlier call."""
    draw, n, heads, width = random(sizes), sizes.length, sizes.heads, 2 * sizes.width
    window = 3 * sizes.state
    before = window if sizes.seed % 2 else 0
    slot = torch.arange(before, before + n)
    first = torch.where(chosen(sizes, sizes.rows, n), slot, 0).cummax(1).values
    inputs = [draw(sizes.rows, n, heads, width), *(draw(sizes.rows, before + n, heads, width) for _ in range(2))]

    def run(function: Callable) -> Callable:
        return lambda q, k, v: function(q, k, v, first, window, 50.0)

    return run(window_ops.windowed_attention), run(window_ops.windowed_attention_reference), inputs


def norm_call(sizes: Sizes) -> Call:
    draw = random(sizes)
    inputs = [draw(sizes.rows, sizes.length, sizes.width), draw(sizes.width)]
    return partial(norm.rms_norm, eps=1e-5), partial(norm.rms_norm_reference, eps=1e-5), inputs


def address_call(sizes: Sizes) -> Call:
    draw = random(sizes)
    z, directions = (
        draw(sizes.rows, sizes.heads, sizes.length, sizes.width),
        draw(sizes.heads, sizes.width, sizes.state),
    )
    inputs = [address.unit_vectors(z.detach()), directions.detach()]
    return address.assign_addresses, address.assign_addresses_reference, inputs


def quantize_call(sizes: Sizes) -> Call:
    mode = list(quantize.Quantization)[1 + sizes.seed % 3]
    inputs = [random(sizes)(sizes.width, sizes.length).detach()]
    return lambda w: quantize.fake_quantize(w, mode), lambda w: quantize.fake_quantize_reference(w, mode), inputs


def route_call(sizes: Sizes) -> Call:
    draw, experts = random(sizes), sizes.heads
    generator = torch.Generator().manual_seed(sizes.seed)
    choice = torch.randint(experts, (sizes.length,), generator=generator)
    inputs = [draw(sizes.length, sizes.width), draw(experts, 2 * sizes.state, sizes.width)]
    inputs.append(draw(experts, sizes.width, sizes.state))
    between = torch.tanh if sizes.seed % 2 else torch.clone

    def run(function: Callable) -> Callable:
        def call(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
            maps = [(partial(linear, weight=up[e]), lambda h, e=e: linear(between(h), down[e])) for e in range(experts)]
            return function(x, choice, maps)

        return call

    return run(route.routed_swiglu), run(route.routed_swiglu_reference), inputs


def product_call(sizes: Sizes) -> Call:
    """Codes at the ends of their range, where sums are largest."""
    generator = torch.Generator().manual_seed(sizes.seed)
    shapes = (sizes.rows, sizes.length), (sizes.width, sizes.length)
    inputs = [torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8) for shape in shapes]
    if sizes.seed % 2:
        inputs = [torch.where(codes < 0, -128, 127).to(torch.int8) for codes in inputs]
    return packed.integer_product, packed.integer_product_reference, inputs


def linear_call(sizes: Sizes) -> Call:
    draw = random(sizes)
    inputs = [draw(sizes.rows, sizes.length, sizes.width), draw(sizes.state, sizes.width)]
    return product.linear_product, product.linear_product_reference, inputs


def packed_call(sizes: Sizes) -> Call:
    mode, draw = list(quantize.Quantization)[1 + sizes.seed % 3], random(sizes)
    codes, scale = quantize.quantize_weight(draw(sizes.width, sizes.length), mode)
    stored = packed.pack_codes(codes, mode)

    def run(function: Callable) -> Callable:
        return lambda x: function(x, stored, scale, mode)

    inputs = [draw(sizes.rows, sizes.heads, sizes.length).detach()]
    return run(packed.packed_linear), run(packed.packed_linear_reference), inputs


CALLS = {
    "selective_scan": scan_call,
    "selective_scan in pieces": recurrence_call,
    "causal_convolution": convolution_call,
    "banded_softmax": band_call,
    "windowed_attention": window_call,
    "rms_norm": norm_call,
    "assign_addresses": address_call,
    "fake_quantize": quantize_call,
    "routed_swiglu": route_call,
    "integer_product": product_call,
    "packed_linear": packed_call,
    "linear_product": linear_call,
}

kernels = pytest.mark.parametrize("name", CALLS)


def tensors(result: object) -> Sequence[torch.Tensor]:
    return result if isinstance(result, tuple) else (result,)


def agree(call: Call) -> None:
    """Values and gradients, of a sum with unlike weights, within 1e-9 of the largest."""
    fast, slow, inputs = call
    results = [tensors(function(*inputs)) for function in (fast, slow)]
    leaves = [leaf for leaf in inputs if leaf.requires_grad]
    found = [gradients(result, leaves) for result in results] if leaves else []
    for a, b in (*zip(*results, strict=True), *zip(*found, strict=True)):
        assert a.dtype == b.dtype
        assert far(a.detach(), b.detach()) <= 1e-9 * (1 + far(b.detach(), torch.zeros_like(b)))


def gradients(result: Sequence[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    weights = [torch.cos(torch.arange(part.numel(), dtype=part.dtype)).reshape(part.shape) for part in result]
    total = sum((part * weight).sum() for part, weight in zip(result, weights, strict=True))
    total = total + sum(0 * leaf.sum() for leaf in leaves)  # nothing may have been read
    return list(torch.autograd.grad(total, leaves))


def sizes_of(lengths: st.SearchStrategy[int]) -> st.SearchStrategy[Sizes]:
    small = st.integers(1, 7)
    share = st.sampled_from([0.0, 0.02, 0.3, 1.0])
    return st.builds(Sizes, lengths, st.integers(1, 3), st.integers(1, 4), small, small, st.integers(0, 2**16), share)


@contract(10, breaks=(LOST_REST, NEXT_BLOCK, HALF_SLOPE, LONG_WINDOW, FIRST_TAP, STALE_RUNS, CUT_OFF))
@kernels
@pytest.mark.parametrize("length", LENGTHS)
def test_kernels_equal_their_twins_at_lengths_around_a_block(name: str, length: int) -> None:
    for seed in range(2 if length < 1000 else 1):
        agree(CALLS[name](Sizes(length, 2, 3, 5, 3, seed, 0.05)))


@contract(10, breaks=(UNSURE_SUMS, LATE_ANGLES, NEAREST))
@kernels
@examples(25)
@given(sizes=sizes_of(st.integers(1, 20) | st.integers(60, 200)))
def test_kernels_equal_their_twins_at_any_length_and_width(name: str, sizes: Sizes) -> None:
    agree(CALLS[name](sizes))


@contract(10)
def test_every_kernel_with_a_twin_is_compared() -> None:
    modules = [
        importlib.import_module(f"{ops.__name__}.{module.name}") for module in pkgutil.iter_modules(ops.__path__)
    ]
    with_twin = {
        name[: -len("_reference")] for module in modules for name in vars(module) if name.endswith("_reference")
    }
    assert with_twin <= CALLS.keys()


@st.composite
def odd_configurations(draw: st.DrawFn) -> dict[str, object]:
    """Widths and counts from 1 to 7, of one type of heads or several."""
    names = "vocab_size d_model num_layers d_head d_state d_conv window num_kept num_anchors retrieval_degree"
    names += " num_addresses d_address d_ff d_expert"
    heads = draw(st.dictionaries(st.sampled_from([str(kind) for kind in HEAD_TYPES]), st.integers(1, 3), min_size=1))
    site = draw(st.sampled_from(["sheaf", "sheaf", "complete", "window"]))
    sizes = {name: draw(st.integers(1, 7)) for name in names.split()}
    return sizes | {"heads": heads, "site": site, "num_experts": draw(st.integers(0, 3)), "num_layers": 1}


@contract(10)
@examples(25)
@given(options=odd_configurations(), length=st.integers(1, 70))
def test_any_width_works_or_the_configuration_names_the_constraint(options: dict[str, object], length: int) -> None:
    refused = ""
    try:
        config = SheafStateConfig(**options)
    except InputError as error:
        refused = str(error)
    if refused:
        odd = [name for name in ("d_head", "num_addresses") if options[name] % 2]
        assert any(name in refused and str(options[name]) in refused for name in odd)
        return
    model = SheafStateForCausalLM(config).double().train()
    ids = torch.arange(length)[None] % config.vocab_size
    logits = model(ids, use_cache=False).logits
    logits.square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        begun = model(ids[:, : (length + 1) // 2], use_cache=True)
        parts = [begun.logits]
        if length > 1:
            parts.append(model(ids[:, (length + 1) // 2 :], cache=begun.cache).logits)
    assert far(torch.cat(parts, 1), logits) <= 1e-9
