"""The loss of two passes is torch's cross-entropy, in value and slope."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from sheafstate.nn.readout import next_token_loss
from tests.variants import examples


@examples(40)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 300),
    vocabulary=st.integers(1, 40),
    ignored=st.floats(0, 1),
    scale=st.sampled_from([0.0, 1.0, 1e4]),
    seed=st.integers(0, 2**31),
)
def test_values_and_slopes_equal_cross_entropy(
    rows: int, length: int, vocabulary: int, ignored: float, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, length, vocabulary, generator=generator, dtype=torch.float64)
    targets = torch.randint(vocabulary, (rows, length), generator=generator)
    targets = targets.masked_fill(torch.rand(rows, length, generator=generator) < ignored, -100)
    ours, theirs = (logits.clone().requires_grad_() for _ in range(2))
    found = next_token_loss(ours, targets, 7)
    wanted = functional.cross_entropy(theirs.flatten(0, 1), targets.flatten(), reduction="sum") / 7
    torch.testing.assert_close(found, wanted)
    (3 * found).backward()
    (3 * wanted).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("target", [-1, -99, 5, 10**6])
def test_a_target_that_is_no_token_is_refused(target: int) -> None:
    with pytest.raises((IndexError, RuntimeError)):
        next_token_loss(torch.zeros(1, 2, 5), torch.tensor([[1, target]]))


def test_logits_in_float32_keep_their_precision() -> None:
    logits = 1e4 + torch.randn(1, 600, 300, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(600)[None] % 300
    exact = functional.cross_entropy(logits.double().flatten(0, 1), targets.flatten())
    assert next_token_loss(logits, targets).item() == pytest.approx(exact.item(), rel=1e-6)
