"""Small models on which laws are tried: every patch type alone, the default mixture, the covers of the baselines."""

import torch
from hypothesis import settings

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.patches import HEAD_TYPES

VOCABULARY = 23

SMALL = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "num_layers": 2,
    "d_head": 4,
    "d_state": 3,
    "d_conv": 3,
    "window": 5,
    "num_kept": 3,
    "num_anchors": 3,
    "retrieval_degree": 3,
    "num_addresses": 4,
    "d_address": 5,
    "d_ff": 8,
    "num_experts": 3,
    "d_expert": 4,
    "gluing": "sheaf",
    "write_licence": True,
}

MIXTURE = {str(kind): 1 for kind in HEAD_TYPES} | {"local": 2, "retrieval": 2}

VARIANTS = {str(kind): {"heads": {str(kind): 2}} for kind in HEAD_TYPES} | {
    "mixture": {"heads": MIXTURE},
    "mixture-plain": {"heads": MIXTURE, "gluing": "plain", "directions": "orthogonal", "retrieval_recency": True},
    "complete": {"heads": {"local": 3}, "site": "complete"},
    "window": {"heads": {"local": 3}, "site": "window", "gluing": "plain", "output_gate": False},
}


def examples(count: int) -> settings:
    """At most ``count`` examples in the profile that CI runs; as many as the profile says in the long one."""
    profile = settings.default.max_examples
    return settings(max_examples=count if profile < 1000 else profile)


def make_config(name: str, **overrides: object) -> SheafStateConfig:
    return SheafStateConfig(**(SMALL | VARIANTS[name] | overrides))


def make_model(
    name: str, dtype: torch.dtype = torch.float64, seed: int = 0, **overrides: object
) -> SheafStateForCausalLM:
    """A model whose parameters are far from their initial values, so that every part has an effect."""
    torch.manual_seed(seed)
    model = SheafStateForCausalLM(make_config(name, **overrides)).to(dtype).eval()
    disturb(model)
    return model


@torch.no_grad()
def disturb(model: torch.nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if name.endswith("boundary_bias"):
            parameter.fill_(-1.0)
        elif name.endswith(("write_bias", "anchor_bias")):
            parameter.fill_(0.3)
        elif "embed_tokens" in name:
            parameter.normal_(0.0, 1.0)
        else:
            parameter.add_(0.3 * torch.randn_like(parameter))


def tokens(batch: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))
