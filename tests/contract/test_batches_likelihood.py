"""Promise 9: how likely a text is does not depend on what else is in its batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate.data import load_tokenizer
from sheafstate.evaluation import evaluate
from tests.variants import VOCABULARY

from .promises import Mutation, contract
from .readings import CASES, model_of, per_case

BATCHES = (1, 4, 16)

SHARED_SCALE = Mutation(
    "ops/quantize.py",
    "scale = (x.abs().amax(-1, keepdim=True) / 127)",
    "scale = (x.abs().amax() / 127).expand(*x.shape[:-1], 1)",
    "activations of a batch are quantised with one scale",
)
WRONG_ROW = Mutation(
    "ops/banded.py",
    "index_select(0, (index + row * values.shape[1]).flatten())",
    "index_select(0, (index + row * (index.max() + 1)).flatten())",
    "rows of keys are found by the last slot that is read",
)


def likelihoods(model: torch.nn.Module, texts: list[torch.Tensor], rows: int, left: bool) -> torch.Tensor:
    """Nats of each text, so many texts at a time, padded on one side."""
    nats = []
    for begin in range(0, len(texts), rows):
        group = texts[begin : begin + rows]
        width = max(map(len, group))
        gaps = [(width - len(text), 0) if left else (0, width - len(text)) for text in group]
        pad = torch.nn.functional.pad
        ids = torch.stack([pad(text, gap) for text, gap in zip(group, gaps, strict=True)])
        mask = torch.stack([pad(torch.ones_like(text), gap) for text, gap in zip(group, gaps, strict=True)])
        chances = model(ids, attention_mask=mask, use_cache=False).logits.log_softmax(-1)
        for row, text in enumerate(group):
            mine = chances[row, mask[row] == 1][:-1]
            nats.append(-mine.gather(1, text[1:, None]).sum())
    return torch.stack(nats)


@contract(9, breaks=SHARED_SCALE)
@pytest.mark.parametrize("case", CASES)
@per_case(1)
@given(count=st.sampled_from([9, 5, 17]) | st.integers(2, 17), left=st.booleans(), seed=st.integers(0, 2**16))
@torch.no_grad()
def test_likelihoods_do_not_move_with_the_batch(case: str, count: int, left: bool, seed: int) -> None:
    """Nor with the order of the texts."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 40, (count,), generator=generator).tolist()
    texts = [torch.randint(VOCABULARY, (length,), generator=generator) for length in lengths]
    order = torch.randperm(count, generator=generator)
    first, *others = (likelihoods(model_of(case), texts, rows, left) for rows in BATCHES)
    turned = likelihoods(model_of(case), [texts[i] for i in order], 16, not left)
    for nats in (*others, turned[order.argsort()]):
        torch.testing.assert_close(nats, first, rtol=0, atol=1e-9)


WORDS = "A stone; the sea. Ein Fluß, ein Baum\n東 και"


def written(seed: int) -> list[str]:
    """Two to 17 documents of up to 40 characters."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 41, (2 + seed % 16,), generator=generator).tolist()
    return ["".join(WORDS[i] for i in torch.randint(len(WORDS), (n,), generator=generator)) for n in lengths]


@contract(9, breaks=(SHARED_SCALE, WRONG_ROW))
@pytest.mark.parametrize("case", ["mixture", "complete", "mixture+int8"])
@per_case(1, 3)
@given(
    documents=st.builds(written, st.just(5) | st.integers(0, 2**16)),
    context=st.just(9) | st.integers(2, 30),
    carry=st.sampled_from([True, False]),
)
def test_the_figures_of_an_evaluation_do_not_move_with_the_batch(
    case: str, documents: list[str], context: int, carry: bool
) -> None:
    tokenizer = load_tokenizer("byte")
    model = model_of(case, vocab_size=len(tokenizer))
    first, *others = (
        evaluate(model, tokenizer, documents, context=context, carry=carry, batch_size=rows) for rows in BATCHES
    )
    for metrics in others:
        assert (metrics.tokens, metrics.bytes) == (first.tokens, first.bytes)
        # the logits are rounded to float32 before their logarithms are taken
        assert metrics.nats == pytest.approx(first.nats, rel=1e-6)
