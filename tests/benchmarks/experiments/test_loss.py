"""The loss that is computed a few positions at a time is the model's own."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

from sheafstate import SheafStateForCausalLM
from sheafstate.benchmarks.experiments import loss
from sheafstate.benchmarks.experiments.loss import readout_loss
from sheafstate.benchmarks.experiments.trainer import ExperimentTrainer
from tests.variants import make_model


def bare_trainer() -> ExperimentTrainer:
    """One that can compute a loss, and nothing else; in the types that its tensors have."""
    trainer = ExperimentTrainer.__new__(ExperimentTrainer)
    trainer.accelerator = SimpleNamespace(autocast=nullcontext)
    return trainer


@pytest.mark.parametrize("positions", [1, 7, 100])
def test_it_is_the_cross_entropy_of_all_logits(monkeypatch: pytest.MonkeyPatch, positions: int) -> None:
    monkeypatch.setattr(loss, "POSITIONS", positions)
    x, weight = torch.randn(20, 6, dtype=torch.float64), torch.randn(11, 6, dtype=torch.float64)
    targets = torch.randint(11, (20,))
    sides = []
    for function in (readout_loss, lambda x, weight, targets: cross_entropy(x @ weight.T, targets)):
        inputs = x.clone().requires_grad_(), weight.clone().requires_grad_()
        value = function(*inputs, targets)
        (3 * value).backward()
        sides.append((value.detach().double(), inputs[0].grad, inputs[1].grad))
    for ours, plain in zip(*sides, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-12, rtol=1e-12)


def test_autocast_does_not_round_the_products() -> None:
    x, weight, targets = torch.randn(30, 8), torch.randn(50, 8), torch.randint(50, (30,))
    with torch.autocast("cpu", torch.bfloat16):
        inside = readout_loss(x, weight, targets)
    assert inside == readout_loss(x, weight, targets)


def gradients_of(model: SheafStateForCausalLM, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_it_is_the_loss_of_the_model() -> None:
    model = make_model("mixture", router_aux_loss_coef=0.0).train()
    ids = torch.randint(model.config.vocab_size, (2, 24))
    labels = ids.clone()
    labels[0, :5] = -100
    trainer = bare_trainer()
    ours = trainer.compute_loss(model, {"input_ids": ids, "labels": labels})
    whole = model(input_ids=ids, labels=labels, use_cache=False).loss
    torch.testing.assert_close(ours, whole)
    for (name, one), other in zip(gradients_of(model, ours).items(), gradients_of(model, whole).values(), strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_the_load_of_the_experts_is_balanced_too() -> None:
    ids = torch.randint(16, (2, 24))
    trainer, routers = bare_trainer(), []
    for weight in (0.0, 1.0):
        model = make_model("mixture", router_aux_loss_coef=weight).train()
        gradients = gradients_of(model, trainer.compute_loss(model, {"input_ids": ids, "targets": ids}))
        routers.append(gradients["model.layers.0.experts.router"])
    assert (routers[0] - routers[1]).abs().max() > 1e-6
