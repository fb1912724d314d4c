"""Batches as users cut them: unequal rows, paddings and documents at once, and the chunks in which they are read."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from hypothesis import settings
from hypothesis import strategies as st

from sheafstate import SheafStateForCausalLM
from sheafstate.state import SheafStateCache
from tests.variants import SMALL, VARIANTS, VOCABULARY, make_model

LOW_BIT = ("int8", "int4", "ternary")
CASES = tuple(dict.fromkeys(("mixture", *VARIANTS, *(f"mixture+{mode}" for mode in LOW_BIT))))
"""Every variant, and the mixture of all types with low-bit maps; what most faults show in comes first."""
KINDS = tuple(case for case in CASES if case not in {"mixture-plain", "mixture+int8", "mixture+int4"})
"""Without those that differ from another in what keeps no state: gluing, and how coarsely weights are rounded."""

WINDOW, DEGREE, BLOCK = SMALL["window"], SMALL["retrieval_degree"], 64
BORDERS = sorted({1, 2, BLOCK - 1, BLOCK, BLOCK + 1, *range(DEGREE - 1, DEGREE + 2), *range(WINDOW - 1, WINDOW + 2)})
"""Lengths of chunks at and beside the borders of what is read: degree, window, block of the kernels."""


@cache
def model_of(case: str, dtype: torch.dtype = torch.float64, **overrides: object) -> SheafStateForCausalLM:
    """One model a case; nobody trains it."""
    name, _, mode = case.partition("+")
    return make_model(name, dtype, quantization=mode or "none", **overrides)


def per_case(count: int, cases: int = len(KINDS)) -> settings:
    """``count`` examples of every case in CI; in the long profile the cases share the profile's examples."""
    profile = settings.default.max_examples
    return settings(max_examples=count if profile < 1000 else max(profile // cases, 1))


@dataclass(frozen=True)
class Reading:
    """A batch, and where it is cut.

    Attributes:
        ids: (B, T).
        mask: (B, T), or ``None`` where nothing is masked.
        documents: the argument that tells documents apart, if any.
        cuts: ends of the chunks.
        mask_so_far: whether a chunk is given the mask of all columns so far, or of its own.
    """

    ids: torch.Tensor
    mask: torch.Tensor | None
    documents: dict[str, torch.Tensor]
    cuts: tuple[int, ...]
    mask_so_far: bool

    @property
    def valid(self) -> torch.Tensor:
        """Columns whose outputs mean something."""
        return torch.ones_like(self.ids, dtype=torch.bool) if self.mask is None else self.mask.bool()

    def arguments(self, begin: int, end: int) -> dict[str, torch.Tensor]:
        """What a call for some of the columns is given."""
        given = {"input_ids": self.ids[:, begin:end]}
        given |= {name: values[:, begin:end] for name, values in self.documents.items()}
        if self.mask is not None:
            given["attention_mask"] = self.mask[:, (0 if self.mask_so_far else begin) : end]
        return given

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Begin and end of every chunk."""
        yield from zip([0, *self.cuts[:-1]], self.cuts, strict=True)


@torch.no_grad()
def read_whole(model: SheafStateForCausalLM, reading: Reading) -> torch.Tensor:
    """Logits without any state."""
    return model(**reading.arguments(0, reading.ids.shape[1]), use_cache=False).logits


@torch.no_grad()
def read_in_chunks(
    model: SheafStateForCausalLM, reading: Reading, state: SheafStateCache | None = None
) -> tuple[torch.Tensor, SheafStateCache]:
    """Logits of the chunks in a row, and the state after the last."""
    parts = []
    for begin, end in reading.chunks():
        output = model(**reading.arguments(begin, end), cache=state, use_cache=True)
        state = output.cache
        parts.append(output.logits)
    return torch.cat(parts, 1), state


def far(a: torch.Tensor, b: torch.Tensor, where: torch.Tensor | None = None) -> float:
    """The largest difference of two tensors, of their first axes where a mask says so."""
    difference = (a - b).abs() if where is None else (a - b).abs()[where]
    return difference.max().item() if difference.numel() else 0.0


@st.composite
def cuts(draw: st.DrawFn, width: int, most: int = 9) -> tuple[int, ...]:
    """Ends of chunks: single steps, several at once, and lengths at the borders of what is read."""
    # Hypothesis tries the simplest first, and CI little else: two steps and the rest, in rows with holes
    sizes = draw(
        st.lists(st.sampled_from([1, 1, 1, *BORDERS]) | st.integers(1, max(width, 1)), min_size=2, max_size=most)
    )
    ends, at = [], 0
    for size in sizes:
        at += size
        if at >= width:
            break
        ends.append(at)
    return (*ends, width)


@st.composite
def masks(draw: st.DrawFn, rows: int, width: int) -> torch.Tensor | None:
    """No mask, or rows of unequal lengths padded left, right, or anywhere."""
    kind = draw(st.sampled_from(["anywhere", "left", "right", "none"]))
    if kind == "none":
        return None
    if kind == "anywhere":
        seed, dense = draw(st.integers(0, 2**16)), draw(st.sampled_from([0.5, 0.9, 0.1]))
        return (torch.rand(rows, width, generator=torch.Generator().manual_seed(seed)) < dense).long()
    lengths = torch.tensor(draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows)))[:, None]
    column = torch.arange(width)
    return (column >= width - lengths if kind == "left" else column < lengths).long()


@st.composite
def documents(draw: st.DrawFn, rows: int, ends: tuple[int, ...], mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """No documents, or borders of each row's own, told by ids that may come back or by positions that restart.

    Borders like to lie where a chunk begins.
    """
    name = draw(st.sampled_from(["document_ids", "position_ids", "seq_idx", ""]))
    if not name:
        return {}
    width = ends[-1]
    places = st.sampled_from([*reversed(ends[:-1]), 0]) | st.integers(0, width - 1)
    starts = torch.zeros(rows, width, dtype=torch.long)
    for row in range(rows):
        starts[row, sorted(draw(st.sets(places, min_size=1, max_size=4)))] = 1
    number = starts.cumsum(1)
    if name != "position_ids":
        return {name: number % 2 + 5 if draw(st.booleans()) else number}
    steps = torch.ones_like(starts) if mask is None or draw(st.booleans()) else mask
    before = steps.cumsum(1) - steps
    opened = torch.where(starts.bool(), before, 0).cummax(1).values
    return {name: before - opened}


@st.composite
def readings(draw: st.DrawFn, widths: st.SearchStrategy[int], rows: int = 3) -> Reading:
    """Batches of at most so many rows, padded and packed in any way, cut anywhere."""
    width, count = draw(widths), rows - draw(st.integers(0, rows - 1))
    seed = draw(st.integers(0, 2**16))
    ids = torch.randint(VOCABULARY, (count, width), generator=torch.Generator().manual_seed(seed))
    mask, ends = draw(masks(count, width)), draw(cuts(width))
    return Reading(ids, mask, draw(documents(count, ends, mask)), ends, draw(st.booleans()))
