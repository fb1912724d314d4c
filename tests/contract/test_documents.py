"""Promise 8: documents packed in a row neither see nor influence each other, however a caller tells them apart."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import DataCollatorWithFlattening

from sheafstate import SheafStateForCausalLM
from tests.variants import VOCABULARY

from .promises import Mutation, contract
from .readings import CASES, cuts, far, model_of, per_case

cases = pytest.mark.parametrize("case", CASES)

OLD_STATE = Mutation(
    "ops/scan.py",
    "from_before = torch.where((patch == 0)[..., None], sums.to(x.dtype).exp(), 0.0)",
    "from_before = sums.to(x.dtype).exp()",
    "a chunk of the scan begins with the last document's state",
)
LOOKING_BACK = Mutation(
    "ops/scan.py",
    "documents[:, tap : tap + segment.shape[1]] == segment",
    "documents[:, tap : tap + segment.shape[1]] <= segment",
    "the convolution looks over a document's beginning",
)
FOREIGN_TAIL = Mutation(
    "nn/dynamics.py",
    "return rows.final(torch.cat([tail.to(x.dtype), x], 1), count) * same[..., None]",
    "return rows.final(torch.cat([tail.to(x.dtype), x], 1), count)",
    "the convolution's tail holds another document",
)
FOREIGN_PENDING = Mutation(
    "rows.py",
    "settled = None if bool(start.any()) else int(offset.min())",
    "settled = int(offset.min())",
    "a document's last entry is completed by the next document",
)
NO_BORDER = Mutation(
    "rows.py",
    "return documents != torch.cat([before.document[:, None], documents[:, :-1]], 1)",
    "return documents > torch.cat([before.document[:, None], documents[:, :-1]], 1)",
    "only growing ids tell documents apart",
)
MASKED_GAP = Mutation(
    "rows.py",
    "start = (step != 1) & (step != gap)",
    "start = step != 1",
    "a document restarts behind every masked gap",
)
BORDERS_EARLY = Mutation(
    "rows.py", "borders[1:].contiguous(), right=True)", "borders[1:].contiguous())", "borders lie one token late"
)
ONE_BALANCE = Mutation(
    "nn/experts.py",
    "number = (rows.segment + torch",
    "number = (0 * rows.segment + torch",
    "experts are balanced over a row instead of each document",
)
ONE_ORDERING = Mutation(
    "nn/dynamics.py",
    "return rows.segment[:, None] * num_addresses + address",
    "return address + 0 * rows.segment[:, None]",
    "an address holds what every document wrote there",
)
ONE_BUCKET = Mutation(
    "nn/transport_retrieval.py",
    "key = (entries.segment[:, None] * self.num_addresses + entries.address).flatten(0, 1)",
    "key = entries.address.flatten(0, 1)",
    "a bucket holds what every document wrote there",
)


@dataclass(frozen=True)
class Packed:
    """Rows of documents.

    Attributes:
        ids: (B, T).
        number: document of each column.
        mask: whether the column exists.
        borders: the arguments that tell documents apart, and the padding.
        ways: other arguments that say the same.
    """

    ids: torch.Tensor
    number: torch.Tensor
    mask: torch.Tensor
    borders: dict[str, torch.Tensor]
    ways: list[dict[str, torch.Tensor]]

    def documents(self) -> Iterator[torch.Tensor]:
        """Where each document lies: masks (B, T), those without a token left out."""
        for row in range(len(self.ids)):
            for number in range(int(self.number[row].max()) + 1):
                mine = torch.zeros_like(self.mask)
                mine[row] = (self.number[row] == number) & self.mask[row]
                if mine.any():
                    yield mine

    def arguments(self, begin: int, end: int) -> dict[str, torch.Tensor]:
        """The borders of some columns."""
        return {name: values[:, begin:end] for name, values in self.borders.items()}


def ways(number: torch.Tensor, mask: torch.Tensor, under: int) -> list[dict[str, torch.Tensor]]:
    """All ways to tell documents apart: ids that grow, fall or come back, positions that restart."""
    first = torch.ones_like(mask)
    first[:, 1:] = number[:, 1:] != number[:, :-1]

    def restarting(steps: torch.Tensor, begin: int) -> torch.Tensor:
        before = steps.cumsum(1) - steps
        return before - torch.where(first, before, 0).cummax(1).values + begin

    found = [
        {"document_ids": (40 - number).masked_fill(~mask, under)},
        {"document_ids": 17 * number},
        {"seq_idx": number.to(torch.int32)},
        {"position_ids": restarting(mask.long(), 2).masked_fill(~mask, under)},
        {"position_ids": restarting(mask.long(), 0).masked_fill(~mask, 1)},
    ]
    if (mask | ~first).all():  # a document whose first column is padded would else be taken for its neighbour
        found.append({"position_ids": restarting(torch.ones_like(number), 0)})
        found.append({"document_ids": number % 2 + under})
    return found


@st.composite
def packed(draw: st.DrawFn, longest: int = 25) -> Packed:
    """One to three rows of one to seven documents, with padding at their ends and inside, or without any.

    Lengths come from a drawn seed, so that even the simplest example has several documents.
    """
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    rows = []
    for _ in range(draw(st.sampled_from([2, 1, 3]))):
        count = draw(st.sampled_from([3, 5, 7, 2, 1]))
        size = torch.randint(1, draw(st.sampled_from([longest, 4])), (count,), generator=generator)
        rows.append(torch.where(torch.rand(count, generator=generator) < 0.3, 1, size).tolist())
    width, pads_left = max(map(sum, rows)), draw(st.booleans())
    number = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for row, lengths in enumerate(rows):
        begin = width - sum(lengths) if pads_left else 0
        end = begin + sum(lengths)
        number[row, begin:end] = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        number[row, end:] = len(lengths) - 1
        mask[row, begin:end] = True
    ids = torch.randint(VOCABULARY, number.shape, generator=generator)
    mask &= torch.rand(mask.shape, generator=generator) >= draw(st.sampled_from([0.2, 0.0, 0.0, 0.5]))
    if draw(st.sampled_from([True, False])):
        mask[:, 1:] |= number[:, 1:] != number[:, :-1]
        mask[:, 0] = True
    padding = {} if mask.all() else {"attention_mask": mask.long()}
    told = [way | padding for way in ways(number, mask, draw(st.sampled_from([0, 40, 99])))]
    return Packed(ids, number, mask, draw(st.sampled_from(told)), told)


@st.composite
def cuts_at_borders(draw: st.DrawFn, text: Packed) -> list[int]:
    """Ends of chunks, many of them where a document ends in some row."""
    width = text.ids.shape[1]
    borders = (text.number[:, 1:] != text.number[:, :-1]).any(0).nonzero()[:, 0] + 1
    seed = draw(st.integers(0, 2**16))
    chosen = borders[torch.rand(len(borders), generator=torch.Generator().manual_seed(seed)) < 0.7]
    # a step of one token where a document begins is a case of its own
    return sorted({*chosen.tolist(), *(chosen[seed % 2 :] + 1).clamp(max=width).tolist(), *draw(cuts(width))})


@contract(
    8,
    breaks=(OLD_STATE, LOOKING_BACK, FOREIGN_TAIL, FOREIGN_PENDING, NO_BORDER, MASKED_GAP, ONE_ORDERING),
)
@cases
@per_case(2)
@given(text=packed(), data=st.data())
@torch.no_grad()
def test_packed_documents_equal_solo_documents(case: str, text: Packed, data: st.DataObject) -> None:
    """At once, and in chunks that end with documents, before them and inside."""
    model, state, parts = model_of(case), None, []
    whole = model(text.ids, **text.borders, use_cache=False).logits
    for borders in text.ways:
        assert far(whole, model(text.ids, **borders, use_cache=False).logits, text.mask) <= 1e-9
    begin = 0
    for end in data.draw(cuts_at_borders(text)):
        output = model(text.ids[:, begin:end], **text.arguments(begin, end), cache=state, use_cache=True)
        state, begin = output.cache, end
        parts.append(output.logits)
    chunked = torch.cat(parts, 1)
    for mine in text.documents():
        solo = model(text.ids[mine][None], use_cache=False).logits[0]
        assert far(whole[mine], solo) <= 1e-9
        assert far(chunked[mine], solo) <= 1e-9


@contract(8, breaks=(LOOKING_BACK, ONE_BUCKET))
@cases
@per_case(2)
@given(text=packed(), data=st.data())
def test_a_document_reaches_no_other(case: str, text: Packed, data: st.DataObject) -> None:
    """Change a document's last token: logits and gradients of all others stay, and none reaches the document."""
    model, places = model_of(case), list(text.documents())
    assume(len(places) > 1)
    changed = data.draw(st.sampled_from(range(len(places))))
    mine, others = places[changed], torch.stack(places[:changed] + places[changed + 1 :]).any(0)
    row, column = mine.nonzero()[-1]
    other = text.ids.clone()
    other[row, column] = (other[row, column] + data.draw(st.integers(1, VOCABULARY - 1))) % VOCABULARY
    seen = []
    for ids in (text.ids, other):
        vectors = model.get_input_embeddings()(ids).detach().requires_grad_()
        logits = model(inputs_embeds=vectors, **text.borders, use_cache=False).logits
        weights = (p for p in model.parameters() if p is not model.get_input_embeddings().weight)
        gradients = torch.autograd.grad(logits[others].square().sum(), [vectors, *weights], allow_unused=True)
        # sums of log decays are differences of cumulative sums, whose gradients cancel to the last bit of float64
        assert gradients[0][mine].abs().max() <= 1e-11
        seen.append((logits, gradients))
    (before, gradients), (after, new_gradients) = seen
    assert far(before[others], after[others]) <= 1e-9
    assert far(before[row, column], after[row, column]) > 1e-6
    for a, b in zip(gradients, new_gradients, strict=True):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def trained(model: SheafStateForCausalLM, **batch: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Loss and gradients of a batch."""
    model.train()
    loss = model(**batch).loss
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    model.eval()
    return loss, [g if g is not None else torch.zeros(()) for g in found]


@contract(8, breaks=(BORDERS_EARLY, ONE_BALANCE))
@cases
@per_case(2)
@given(
    lengths=st.permutations([13, 1, 7, 20, 2]) | st.lists(st.integers(1, 20), min_size=2, max_size=6),
    told_by=st.sampled_from([4, 1, 2, 3, 5, 6, 7]),
    begin=st.sampled_from([0, 2]),
    seed=st.integers(0, 2**16),
)
def test_a_flattened_batch_trains_as_a_padded_one(
    case: str, lengths: list[int], told_by: int, begin: int, seed: int
) -> None:
    """What transformers' flattening collator returns goes into the model as it is, whatever it was asked for."""
    assume(max(lengths) > 1)
    collator = DataCollatorWithFlattening(
        return_position_ids=bool(told_by & 1),
        return_seq_idx=bool(told_by & 2),
        return_flash_attn_kwargs=bool(told_by & 4),
        position_ids_start=begin,
    )
    generator = torch.Generator().manual_seed(seed)
    texts = [torch.randint(VOCABULARY, (length,), generator=generator) for length in lengths]
    model = model_of(case, router_aux_loss_coef=1.0)
    flat, flat_gradients = trained(model, **collator([{"input_ids": text} for text in texts]))
    pad = torch.nn.utils.rnn.pad_sequence
    ids, labels = (pad(texts, batch_first=True, padding_value=value) for value in (0, -100))
    mask = pad([torch.ones_like(text) for text in texts], batch_first=True)
    apart, gradients = trained(model, input_ids=ids, labels=labels, attention_mask=mask)
    torch.testing.assert_close(flat, apart, rtol=0, atol=1e-9)
    for a, b in zip(flat_gradients, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
