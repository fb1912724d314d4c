"""Law 9: seeded runs are bitwise equal."""

import pytest
import torch

from sheafstate import SheafStateForCausalLM
from tests.variants import VARIANTS, make_config, tokens

names = pytest.mark.parametrize("name", VARIANTS)


def train(name: str, steps: int = 4) -> list[torch.Tensor]:
    torch.manual_seed(11)
    model = SheafStateForCausalLM(make_config(name))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        ids = tokens(2, 40, step)
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


@names
def test_seeded_runs_are_bitwise_equal(name) -> None:
    for a, b in zip(train(name), train(name), strict=True):
        assert torch.equal(a, b)
