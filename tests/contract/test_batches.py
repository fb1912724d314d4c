"""Promise 7: padding, on either side or inside, changes nothing; whatever values stand under it."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from sheafstate import SheafStateForCausalLM
from tests.variants import VOCABULARY

from .promises import Mutation, contract
from .readings import CASES, cuts, far, model_of, per_case

cases = pytest.mark.parametrize("case", CASES)
UNDER = {"nan": torch.nan, "inf": torch.inf, "minus inf": -torch.inf, "huge": 1e300}
"""What a caller may leave where nothing is."""

SEEN_PADDING = Mutation(
    "rows.py",
    "take_along(x, self.order).masked_fill(~self.rows.valid[..., None], 0)",
    "take_along(x, self.order)",
    "what stands under padding is multiplied by masks instead of being left out",
)
ONE_TOO_MANY = Mutation(
    "rows.py", "valid = index < count[:, None]", "valid = index <= count[:, None]", "a padded position counts"
)
WRITTEN_PADDING = Mutation(
    "nn/dynamics.py",
    'dt = functional.softplus(channels["dt"].to(wide) + self.dt_bias) * valid',
    'dt = functional.softplus(channels["dt"].to(wide) + self.dt_bias)',
    "padded positions are written into the states",
)
WRONG_END = Mutation(
    "nn/records.py",
    "self.length[:, None] + torch.arange(count, device=values.device)",
    "values.shape[1] - count + torch.arange(count, device=values.device).expand(len(self.length), -1)",
    "the last positions of a row are taken from its padding",
)
UNLICENSED = Mutation(
    "nn/transport_retrieval.py",
    "weight = weight.masked_fill(~site.rows.valid[:, None], -torch.inf)",
    "weight = weight + 0",
    "padded positions are written to the addresses",
)
NEIGHBOUR = Mutation(
    "nn/transport_retrieval.py",
    "existing = v.masked_fill(~rows.valid[:, None, :, None], 0.0)",
    "existing = v",
    "a short row's last entry takes its padding for what follows",
)
LATE_PENDING = Mutation(
    "nn/transport_retrieval.py",
    "index.shape[-1] - rows.valid.shape[1] + rows.length - 1",
    "index.shape[-1] - 1 + 0 * rows.length",
    "the entry that waits is looked for at the end of the padding",
)


@dataclass(frozen=True)
class Batch:
    """Rows of unequal lengths; what stands under the padding is random."""

    ids: torch.Tensor
    mask: torch.Tensor

    def solo(self, row: int) -> torch.Tensor:
        """A row alone, without its padding."""
        return self.ids[row, self.mask[row]][None]

    def embedded(self, model: SheafStateForCausalLM, under: float) -> torch.Tensor:
        """The rows as vectors, with a value of one's own under the padding."""
        vectors = model.get_input_embeddings()(self.ids).detach()
        return vectors.masked_fill(~self.mask[..., None], under)


@st.composite
def batches(draw: st.DrawFn, widths: st.SearchStrategy[int], last: bool = False) -> Batch:
    """One to four rows, each padded left, right, on both sides, anywhere or wholly; or with a last column at least.

    Lengths come from a drawn seed, so that even the simplest example has some padding.
    """
    width, rows = draw(widths), draw(st.sampled_from([4, 3, 2, 1]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    ids = torch.randint(VOCABULARY, (rows, width), generator=generator)
    mask = torch.zeros(rows, width, dtype=torch.bool)
    kinds = st.sampled_from(["left", "anywhere", "right", "between", "nothing but padding"])
    for row in range(rows):
        kind = draw(kinds)
        low, high = torch.randint(width + 1, (2,), generator=generator).sort().values.tolist()
        if kind == "anywhere":
            mask[row] = torch.rand(width, generator=generator) < draw(st.sampled_from([0.5, 0.1, 0.9]))
        elif kind != "nothing but padding":
            mask[row, (0 if kind == "right" else low) : (width if kind == "left" else high)] = True
    if last:
        mask[:, -1] = True
    return Batch(ids, mask)


WIDTHS = st.sampled_from([40, 63, 64, 65, 130]) | st.integers(1, 40)


@contract(7, breaks=(SEEN_PADDING, ONE_TOO_MANY, WRITTEN_PADDING, WRONG_END))
@cases
@per_case(2)
@given(batch=batches(WIDTHS), under=st.sampled_from(list(UNDER)), data=st.data())
def test_padded_rows_equal_solo_rows(case: str, batch: Batch, under: str, data: st.DataObject) -> None:
    """At once and in chunks; and every bit stays whatever stands under the padding."""
    model, state, parts = model_of(case), None, []
    with torch.no_grad():
        whole = model(batch.ids, attention_mask=batch.mask.long(), use_cache=False).logits
        vectors = batch.embedded(model, UNDER[under])
        filled = model(inputs_embeds=vectors, attention_mask=batch.mask, use_cache=False).logits
        begin = 0
        for end in data.draw(cuts(batch.ids.shape[1])):
            chunk = vectors[:, begin:end]
            output = model(inputs_embeds=chunk, attention_mask=batch.mask[:, begin:end], cache=state, use_cache=True)
            state, begin = output.cache, end
            parts.append(output.logits)
        solo = [model(batch.solo(row), use_cache=False).logits[0] for row in batch.mask.any(1).nonzero()[:, 0]]
    assert whole.isfinite().all()
    assert torch.equal(filled, whole)
    alone = torch.cat([*solo, whole.new_zeros(0, VOCABULARY)])
    assert far(whole[batch.mask], alone) <= 1e-9
    assert far(torch.cat(parts, 1)[batch.mask], alone) <= 1e-9


@contract(7, breaks=(NEIGHBOUR, LATE_PENDING))
@per_case(4)
@given(batch=batches(st.integers(4, 70)), data=st.data())
@torch.no_grad()
def test_what_waits_at_the_end_of_a_short_row_waits_for_the_next_chunk(batch: Batch, data: st.DataObject) -> None:
    """Without an output gate, where the layers make something of padding too."""
    model, state, parts, begin = model_of("mixture", output_gate=False), None, [], 0
    for end in data.draw(cuts(batch.ids.shape[1])):
        output = model(batch.ids[:, begin:end], attention_mask=batch.mask[:, begin:end], cache=state, use_cache=True)
        state, begin = output.cache, end
        parts.append(output.logits)
    solo = [model(batch.solo(row), use_cache=False).logits[0] for row in batch.mask.any(1).nonzero()[:, 0]]
    assert far(torch.cat(parts, 1)[batch.mask], torch.cat([*solo, parts[0].new_zeros(0, VOCABULARY)])) <= 1e-9


@contract(7, breaks=SEEN_PADDING)
@cases
@per_case(1)
@given(batch=batches(WIDTHS), under=st.sampled_from(list(UNDER)))
def test_gradients_of_padded_rows_are_those_of_solo_rows(case: str, batch: Batch, under: str) -> None:
    model = model_of(case)
    moved = dict(model.named_parameters())

    def gradients(*logits: torch.Tensor) -> list[torch.Tensor]:
        total = sum(part.square().sum() for part in logits)
        found = torch.autograd.grad(total, list(moved.values()), allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for g, p in zip(found, moved.values(), strict=True)]

    if not batch.mask.any():
        return
    vectors = batch.embedded(model, UNDER[under]).requires_grad_()
    logits = model(inputs_embeds=vectors, attention_mask=batch.mask, use_cache=False).logits[batch.mask]
    (of_vectors,) = torch.autograd.grad(logits.square().sum(), vectors, retain_graph=True)
    assert of_vectors[~batch.mask].abs().sum() == 0
    assert of_vectors.isfinite().all()
    rows = [vectors[row, batch.mask[row]][None].detach() for row in batch.mask.any(1).nonzero()[:, 0].tolist()]
    solo = gradients(*(model(inputs_embeds=row, use_cache=False).logits for row in rows))
    for a, b in zip(gradients(logits), solo, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@contract(7, breaks=(WRONG_END, UNLICENSED))
@cases
@per_case(1)
@given(batch=batches(st.just(14) | st.integers(1, 14), last=True), beams=st.sampled_from([1, 2]))
def test_padded_prompts_write_what_solo_prompts_write(case: str, batch: Batch, beams: int) -> None:
    """Prompts end in the same column and are padded before it, in their middle too."""
    model = model_of(case)
    settings = GenerationConfig(max_new_tokens=4, pad_token_id=0, num_beams=beams)

    def written(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
        return model.generate(ids, attention_mask=mask, generation_config=settings)[:, ids.shape[1] :].tolist()

    together = written(batch.ids, batch.mask.long())
    for row, tokens in enumerate(together):
        alone = batch.solo(row)
        assert written(alone, torch.ones_like(alone)) == [tokens]
