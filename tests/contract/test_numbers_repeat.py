"""Promise 14: seeded runs on a CPU are equal bit for bit, in one process and in two."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig

from sheafstate import SheafStateForCausalLM
from tests.variants import make_config, tokens

from .promises import Mutation, contract
from .readings import CASES

ROOT = Path(__file__).parents[2]

OWN_GENERATOR = Mutation(
    "nn/site.py",
    'values["projection"] = torch.randn(self.projection.shape)',
    "own = torch.Generator()\n            own.seed()\n"
    '            values["projection"] = torch.randn(self.projection.shape, generator=own)',
    "the maps to addresses come from a generator that nobody seeds",
)
BY_HASH = Mutation(
    "nn/experts.py",
    'values["router"] = torch.randn(self.router.shape)',
    'values["router"] = hash("router") % 97 + torch.randn(self.router.shape)',
    "the router begins by a hash that differs between processes",
)


def digest(case: str) -> str:
    """A hash of the weights, losses and tokens of a seeded run: construction, training, sampling."""
    name, _, mode = case.partition("+")
    torch.manual_seed(11)
    model = SheafStateForCausalLM(make_config(name, quantization=mode or "none")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = hashlib.sha256()
    for step in range(3):
        ids = tokens(2, 40, step)
        mask = torch.ones_like(ids)
        mask[0, : 5 * step] = 0
        loss = model(ids, labels=ids, attention_mask=mask).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.update(loss.detach().numpy().tobytes())
    for parameter in (*model.parameters(), *model.buffers()):
        found.update(parameter.detach().numpy().tobytes())
    ids = tokens(2, 6)
    settings = GenerationConfig(max_new_tokens=4, do_sample=True, pad_token_id=0)
    written = model.eval().generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    found.update(written.numpy().tobytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def elsewhere() -> dict[str, str]:
    """The digests that another process finds, which hashes strings differently."""
    program = f"import json, torch; torch.set_num_threads(1); from {__name__} import CASES, digest\n"
    program += "print(json.dumps({case: digest(case) for case in CASES}))"
    environment = os.environ | {"PYTHONHASHSEED": "5" if os.environ.get("PYTHONHASHSEED") != "5" else "6"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@contract(14, breaks=(OWN_GENERATOR, BY_HASH))
@pytest.mark.parametrize("case", CASES)
def test_seeded_runs_are_equal_bit_for_bit(case: str, elsewhere: dict[str, str]) -> None:
    assert digest(case) == elsewhere[case]


@contract(14, breaks=OWN_GENERATOR)
def test_what_ran_before_does_not_matter() -> None:
    here = digest("mixture")
    torch.randn(7)
    assert digest("mixture") == here
