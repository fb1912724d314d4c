"""Law 1: causality. Law 2 is tests/contract/test_cached_*, law 3 test_batches*, law 4 test_documents there."""

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
