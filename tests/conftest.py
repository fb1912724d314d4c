"""What every test runs under: no network, few threads, fixed seeds, shapes checked.

The environment is set before anything heavy is imported, and the import hook before ``sheafstate.ops`` and
``sheafstate.nn`` are; both therefore happen while this file is imported, not in a fixture.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import random
from collections.abc import Iterator

import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

# Shapes written in signatures are checked on every call. Beartype resolves the annotations, so ops and nn may not
# hide the names they annotate with behind TYPE_CHECKING.
SHAPE_CHECKED = ("sheafstate.ops", "sheafstate.nn")
jaxtyping.install_import_hook(SHAPE_CHECKED, "beartype.beartype")

SEED = 20_260


class TorchRandom:
    """PyTorch's generator as Hypothesis wants to see one, so that an example does not depend on those before it."""

    def seed(self, value: int) -> None:
        torch.manual_seed(value)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


TORCH_RANDOM = TorchRandom()  # Hypothesis holds it weakly
hypothesis.register_random(TORCH_RANDOM)

# `ci` must say the same of the same commit everywhere; `long` looks for what nobody thought of.
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=20, deadline=None, database=None)
hypothesis.settings.register_profile(
    "long",
    derandomize=False,
    max_examples=10_000,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
# `mutants` is `ci` for a test that will fail: nobody reads the smallest example, and finding it takes minutes.
hypothesis.settings.register_profile(
    "mutants", hypothesis.settings.get_profile("ci"), phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate)
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Start every test from the same random state, whichever tests ran before it."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture
def unchecked_shapes() -> Iterator[None]:
    """Run a test without the shape checks: ``torch.compile(fullgraph=True)`` cannot trace through them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
