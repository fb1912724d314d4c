"""Two processes, with whole copies (DDP) or with parts of every weight (FSDP2), are one process with all rows."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, default_data_collator

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import PackedRows, TokenStream
from sheafstate.training import last_checkpoint

from .processes import EARLY, EXAMPLE, STEPS
from .promises import Mutation, contract

ROOT = Path(__file__).parents[2]
ROUNDING = 1e-12

UNEVEN = Mutation(
    "modeling.py",
    "weight = self.config.router_aux_loss_coef * torch.as_tensor(seen).to(aux_loss) / divisor",
    "weight = self.config.router_aux_loss_coef",
    "the balance of experts weighs a part of a batch like the whole",
)
OWN_MEAN = Mutation(
    "nn/readout.py",
    "if num_items is None else num_items",
    "if num_items is None else (targets != -100).sum().clamp(min=1)",
    "a part of a batch takes the mean over its own labels",
)
SHARED_BALANCE = Mutation(
    "nn/experts.py",
    "return experts * ((counts * mass).sum(-1) / positions).sum()",
    "return experts * (counts.sum(0) * mass.sum(0) / positions.sum()).sum()",
    "the rows of a batch are balanced together",
)

HALF = Mutation(
    "training/checkpoints.py",
    "        return False\n",
    "        return True\n",
    "a checkpoint without its list of files is taken",
)
UNTIED = Mutation(
    "modeling.py",
    '_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}',
    "_tied_weights_keys = {}",
    "embedding and readout are not tied",
)


def launch(program: list[str], *, processes: int = 2) -> str:
    """Run a program under torchrun; returns what it prints."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", *program]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two processes left; one launch serves all tests of this file."""
    folder = tmp_path_factory.mktemp("processes")
    rounds = 1 if hypothesis.settings.default.max_examples < 1000 else 100
    launch(["-m", "tests.contract.processes", str(folder), str(rounds)])
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


@contract(21, 23, breaks=(UNEVEN, OWN_MEAN, SHARED_BALANCE))
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_loss_and_gradients_of_two_processes_are_those_of_one(result, kind) -> None:
    """Rows of unlike lengths and labels, accumulated, with the balance of experts, for every kind of layer."""
    for found in result["errors"]:
        assert found[f"{kind} loss"] <= ROUNDING, found
        assert found[f"{kind} gradient"] <= ROUNDING, found


def plain_losses() -> tuple[list[float], SheafStateForCausalLM]:
    """The example's run in one process, without its wrappers."""
    example = runpy.run_path(str(EXAMPLE))
    tokenizer, rows = example["load_tokenizer"]("byte"), example["ROWS"]
    stream = TokenStream.build(tokenizer, [example["read_documents"]("tinyshakespeare")[0][:100_000]])
    data = PackedRows(stream, context=example["CONTEXT"])
    torch.manual_seed(0)
    model = SheafStateForCausalLM(
        SheafStateConfig.from_preset("tiny", vocab_size=len(tokenizer), d_model=64, num_layers=2)
    )
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=example["LEARNING_RATE"]), []
    for step in range(STEPS):
        loss = model(**default_data_collator([data[step * rows + row] for row in range(rows)])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


@contract(19, 23, breaks=HALF)
def test_a_sharded_run_resumes_to_the_bit_and_is_the_run_of_one_process(result, folder) -> None:
    losses = result["losses"]
    assert losses["first"] + losses["second"] == losses["whole"]
    assert losses["again"] == losses["second"], "a checkpoint that is not whole is not taken"
    assert last_checkpoint(folder / "parts").name == f"checkpoint-{STEPS}"
    assert len(losses["first"]) == EARLY
    alone, _ = plain_losses()
    assert losses["whole"] == pytest.approx(alone, rel=1e-5)


@contract(18, 23, breaks=UNTIED)
def test_a_sharded_run_exports_one_whole_model(folder) -> None:
    _, model = plain_losses()
    loaded = AutoModelForCausalLM.from_pretrained(folder / "whole")
    assert type(loaded) is SheafStateForCausalLM
    assert loaded.config.architectures == ["SheafStateForCausalLM"]
    assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    assert len(AutoTokenizer.from_pretrained(folder / "whole")) == loaded.config.vocab_size
    far = [
        (ours - theirs).abs().flatten()
        for ours, theirs in zip(loaded.state_dict().values(), model.state_dict().values(), strict=True)
    ]
    # where a gradient is hardly more than rounding, Adam may step to either side
    assert (torch.cat(far) > 2e-4).float().mean() < 1e-2
    assert torch.cat(far).max() < STEPS * 3e-3
    resumed = AutoModelForCausalLM.from_pretrained(folder / "parts")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), resumed.parameters(), strict=True))
    files = {path.suffix for path in last_checkpoint(folder / "whole").iterdir()}
    assert files == {".safetensors", ".json"}


@pytest.mark.slow
def test_the_documented_commands_give_the_same(result, tmp_path) -> None:
    words = [launch([str(EXAMPLE), str(tmp_path), str(steps)]).split() for steps in (EARLY, STEPS)]
    assert words[0] + words[1] == [f"{loss:.4f}" for loss in result["losses"]["whole"]]
