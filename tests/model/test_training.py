"""Loss, gradients, parts of a batch, low-bit models that learn."""

import pytest
import torch

from sheafstate import SheafStateForCausalLM
from tests.variants import VARIANTS, make_config, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)


@names
def test_the_loss_is_the_likelihood_of_the_next_token(name) -> None:
    model, ids = make_model(name).train(), tokens(2, 20)
    labels = ids.clone()
    labels[0, 3:7] = -100
    out = model(ids, labels=labels)
    expected = torch.nn.functional.cross_entropy(
        out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
    )
    torch.testing.assert_close(out.loss, expected)
    count = (labels[:, 1:] != -100).sum()
    torch.testing.assert_close(model(ids, labels=labels, num_items_in_batch=2 * count).loss, expected / 2)
    last = model.eval()(ids, labels=ids, logits_to_keep=5)
    assert last.logits.shape[1] == 5


@names
def test_every_parameter_learns(name) -> None:
    model, ids = make_model(name).train(), tokens(4, 60)
    model(ids, labels=ids).loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@names
def test_gradients_equal_finite_differences(name) -> None:
    """Along a random direction, with experts out of the balance and nothing near a border."""
    model, ids = make_model(name, router_aux_loss_coef=0.0).train(), tokens(1, 25)
    model(ids, labels=ids).loss.backward()
    torch.manual_seed(4)
    # the partition of unity passes no gradient on purpose, so what it depends on is left out
    moved = [(n, p) for n, p in model.named_parameters() if "in_proj" not in n and "norm" not in n and "embed" not in n]
    moved = [(n, p) for n, p in moved if "layers.1" in n]
    direction = {n: torch.randn_like(p) for n, p in moved}
    slope = sum((p.grad * direction[n]).sum() for n, p in moved)
    losses = []
    for sign in (1, -1):
        with torch.no_grad():
            for n, p in moved:
                p.add_(sign * 1e-6 * direction[n])
            losses.append(model(ids, labels=ids).loss)
            for n, p in moved:
                p.sub_(sign * 1e-6 * direction[n])
    torch.testing.assert_close((losses[0] - losses[1]) / 2e-6, slope, rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_add_up_to_the_whole() -> None:
    """Rows of different lengths and labels, accumulated or at once: one gradient, the balance of experts included."""
    lengths, prompts = [5, 9, 20, 31], [2, 0, 15, 7]
    rows = [tokens(1, length, length) for length in lengths]
    labels = [row.clone() for row in rows]
    for label, prompt in zip(labels, prompts, strict=True):
        label[:, :prompt] = -100
    count = sum((label[:, 1:] != -100).sum() for label in labels)
    parts = make_model("mixture", router_aux_loss_coef=1.0).train()
    for row, label in zip(rows, labels, strict=True):
        parts(row, labels=label, num_items_in_batch=count).loss.backward()
    whole = make_model("mixture", router_aux_loss_coef=1.0).train()
    pad = torch.nn.functional.pad
    ids = torch.cat([pad(row, (0, 31 - row.shape[1])) for row in rows])
    mask = torch.cat([pad(torch.ones_like(row), (0, 31 - row.shape[1])) for row in rows])
    targets = torch.cat([pad(label, (0, 31 - label.shape[1]), value=-100) for label in labels])
    whole(ids, attention_mask=mask, labels=targets).loss.backward()
    for (name, a), b in zip(parts.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("mode", ["int8", "int4", "ternary"])
def test_low_bit_models_learn(mode) -> None:
    torch.manual_seed(0)
    model = SheafStateForCausalLM(make_config("mixture", quantization=mode)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = torch.arange(40).remainder(7).expand(2, -1)
    losses = []
    for _ in range(60):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
