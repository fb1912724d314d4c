"""Promise 21: every expert stays in use, and padding and packing change neither load nor balance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import read_documents
from tests.variants import VARIANTS, examples, make_config, make_model, tokens

from .promises import Mutation, contract

PADDED_LOAD = Mutation(
    "nn/experts.py",
    "valid = rows.valid.flatten()[:, None].to(probabilities.dtype)",
    "valid = torch.ones_like(rows.valid.flatten()[:, None], dtype=probabilities.dtype)",
    "padding counts as load",
)
MIXED_DOCUMENTS = Mutation(
    "nn/experts.py",
    "number = (rows.segment + torch.arange(",
    "number = (0 * rows.segment + torch.arange(",
    "the documents of a row are balanced as one",
)
WRONG_WAY = Mutation(
    "modeling.py",
    "loss = loss + weight * (aux_loss - aux_loss.detach())",
    "loss = loss - weight * (aux_loss - aux_loss.detach())",
    "the balance is driven away from even",
)

EXPERTS = 4


def text_ids() -> torch.Tensor:
    """The packaged text in bytes."""
    return torch.tensor(list(read_documents("tinyshakespeare")[0][:60_000].encode()))


def shares_after_training(config: SheafStateConfig, steps: int, rows: int, length: int) -> list[torch.Tensor]:
    """Each layer's shares of the experts over held-out text."""
    torch.manual_seed(0)
    model, text = SheafStateForCausalLM(config).train(), text_ids()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        begin = torch.randint(50_000, (rows, 1))
        ids = text[begin + torch.arange(length)]
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        layers = model.eval()(text[-4096:].reshape(4, -1), output_site=True, use_cache=False).site
    return [torch.bincount(layer.experts.flatten(), minlength=config.num_experts) / 4096 for layer in layers]


@contract(21, breaks=WRONG_WAY)
def test_every_expert_is_in_use_after_200_steps(unchecked_shapes) -> None:
    config = make_config("mixture", vocab_size=256, num_experts=EXPERTS, num_layers=1)
    for shares in shares_after_training(config, steps=200, rows=4, length=32):
        assert shares.min() > 0.2 / EXPERTS


@pytest.mark.slow
@contract(21)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_expert_is_in_use_after_200_steps_of_every_kind(name) -> None:
    config = SheafStateConfig.from_preset("tiny", vocab_size=256, num_experts=EXPERTS, **VARIANTS[name])
    for shares in shares_after_training(config, steps=200, rows=4, length=128):
        assert shares.min() > 0.05 / EXPERTS


@st.composite
def padded_rows(draw: st.DrawFn) -> tuple[list[int], torch.Tensor]:
    """Lengths of rows, and a mask that scatters their positions over the columns."""
    lengths = draw(st.lists(st.integers(1, 25), min_size=1, max_size=4))
    width = max(lengths) + draw(st.integers(0, 12))
    columns = [draw(st.permutations(range(width)))[:length] for length in lengths]
    mask = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, chosen in enumerate(columns):
        mask[row, list(chosen)] = 1
    return lengths, mask


def balance(model: SheafStateForCausalLM, ids: torch.Tensor, **given: torch.Tensor) -> tuple[torch.Tensor, list]:
    out = model(ids, output_site=True, use_cache=False, **given)
    return out.aux_loss, [layer.experts for layer in out.site]


@contract(21, breaks=PADDED_LOAD)
@examples(25)
@given(name=st.sampled_from(list(VARIANTS)), drawn=padded_rows(), seed=st.integers(0, 99))
@torch.no_grad()
def test_padding_anywhere_changes_neither_load_nor_balance(name, drawn, seed) -> None:
    """The balance of a batch is that of its rows, weighted by their tokens; each position keeps its expert."""
    lengths, mask = drawn
    model, ids = make_model(name, seed=seed), tokens(*mask.shape, seed)
    together, choices = balance(model, ids, attention_mask=mask)
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths):
        kept = mask[row].bool()
        alone, own = balance(model, ids[row : row + 1, kept])
        total += length * alone / sum(lengths)
        for layer, choice in zip(choices, own, strict=True):
            assert torch.equal(layer[row, kept], choice[0])
    torch.testing.assert_close(together, total, rtol=1e-9, atol=1e-12)


@contract(21, breaks=MIXED_DOCUMENTS)
@examples(15)
@given(
    name=st.sampled_from(list(VARIANTS)),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=4),
    seed=st.integers(0, 99),
)
@torch.no_grad()
def test_packed_documents_are_balanced_each_for_itself(name, lengths, seed) -> None:
    model, ids = make_model(name, seed=seed), tokens(1, sum(lengths), seed)
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    packed, _ = balance(model, ids, document_ids=documents)
    parts = [length * balance(model, part)[0] for length, part in zip(lengths, ids.split(lengths, 1), strict=True)]
    torch.testing.assert_close(packed, sum(parts) / sum(lengths), rtol=1e-9, atol=1e-12)
