"""Laws 1, 3 and 4: causality, independence of batch and padding, documents. Law 2 is tests/contract/test_cached_*."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.variants import VARIANTS, VOCABULARY, examples, make_model, tokens

EXACT = 1e-9
names = pytest.mark.parametrize("name", VARIANTS)


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0


@pytest.fixture(scope="module")
def models() -> dict:
    return {name: make_model(name) for name in VARIANTS}


@names
@examples(5)
@given(length=st.integers(2, 80), data=st.data())
def test_changing_a_token_changes_no_output_before_it(models, name, length, data) -> None:
    model, ids = models[name], tokens(2, length)
    at = data.draw(st.integers(0, length - 1))
    other = ids.clone()
    other[:, at] = (other[:, at] + data.draw(st.integers(1, VOCABULARY - 1))) % VOCABULARY
    with torch.no_grad():
        a, b = model(ids, use_cache=False).logits, model(other, use_cache=False).logits
    assert difference(a[:, :at], b[:, :at]) <= EXACT
    assert difference(a[:, at], b[:, at]) > 1e-6


@names
@examples(5)
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4), data=st.data())
def test_padding_anywhere_equals_solo_rows(models, name, lengths, data) -> None:
    model = models[name]
    width = max(*lengths, 1) + data.draw(st.integers(0, 7))
    ids, mask = tokens(len(lengths), width, 5), torch.zeros(len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        columns = data.draw(st.permutations(range(width)))[:length]
        mask[row, sorted(columns)] = 1
    with torch.no_grad():
        batch = model(ids, attention_mask=mask, use_cache=False).logits
        for row, length in enumerate(lengths):
            if length:
                solo = model(ids[row, mask[row] == 1][None], use_cache=False).logits[0]
                assert difference(batch[row, mask[row] == 1], solo) <= EXACT


@names
def test_rows_do_not_know_their_batch(models, name) -> None:
    model, ids = models[name], tokens(5, 33)
    with torch.no_grad():
        batch = model(ids, use_cache=False).logits
        turned = model(ids.flip(0), use_cache=False).logits.flip(0)
        solo = torch.cat([model(row[None], use_cache=False).logits for row in ids])
    assert difference(batch, turned) <= EXACT
    assert difference(batch, solo) <= EXACT


@names
@examples(5)
@given(lengths=st.lists(st.integers(1, 25), min_size=1, max_size=6), data=st.data())
def test_packed_documents_equal_solo_documents(models, name, lengths, data) -> None:
    model = models[name]
    ids = tokens(1, sum(lengths), 3)
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    cut = data.draw(st.integers(0, ids.shape[1] - 1))
    with torch.no_grad():
        packed = model(ids, document_ids=documents, use_cache=False).logits[0]
        by_position = model(ids, position_ids=positions, use_cache=False).logits[0]
        by_sequence = model(ids, seq_idx=documents, use_cache=False).logits[0]
        if cut:
            first = model(ids[:, :cut], document_ids=documents[:, :cut], use_cache=True)
            rest = model(ids[:, cut:], document_ids=documents[:, cut:], cache=first.cache)
            assert difference(torch.cat([first.logits, rest.logits], 1)[0], packed) <= EXACT
        solo = torch.cat([model(part[None], use_cache=False).logits[0] for part in ids[0].split(lengths)])
    assert difference(packed, solo) <= EXACT
    assert difference(by_position, solo) <= EXACT
    assert difference(by_sequence, solo) <= EXACT


@names
def test_documents_with_padding_equal_solo_documents(models, name) -> None:
    model, ids = models[name], tokens(1, 24, 9)
    mask = torch.ones_like(ids)
    mask[0, [0, 5, 11, 12, 23]] = 0
    documents = torch.tensor([[4] * 11 + [9] * 13])
    with torch.no_grad():
        packed = model(ids, attention_mask=mask, document_ids=documents, use_cache=False).logits[0]
        for document in (4, 9):
            mine = (documents[0] == document) & (mask[0] == 1)
            solo = model(ids[0, mine][None], use_cache=False).logits[0]
            assert difference(packed[mine], solo) <= EXACT


@names
def test_no_gradient_crosses_documents(models, name) -> None:
    model = models[name]
    ids, documents = tokens(1, 30), torch.tensor([[0] * 14 + [1] * 16])
    inputs = model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = model(inputs_embeds=inputs, document_ids=documents, use_cache=False).logits
    logits[0, 14:].square().sum().backward()
    # sums of log decays are differences of cumulative sums, whose gradients cancel to the last bit of float64
    assert inputs.grad[0, :14].abs().max() <= 1e-12
    assert inputs.grad[0, 14:].abs().max() > 0
