"""A text in parts on two processes, its states sent from one to the other, is the text read at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from sheafstate.errors import InputError
from sheafstate.parallel import read_in_parallel
from tests.variants import make_model, tokens

ROOT = Path(__file__).parents[2]
EXACT = 1e-9


def test_parts_on_two_processes_are_the_whole(tmp_path: Path) -> None:
    program = Path(__file__).with_name("parallel_parts.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(tmp_path / "found")], check=False, capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads((tmp_path / f"found.{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]
    for errors in found:
        assert len(errors) == 11 * 3 * 3
        assert max(errors.values()) <= EXACT, {case: e for case, e in errors.items() if e > EXACT}


def test_without_a_process_group_it_is_refused() -> None:
    with pytest.raises(InputError, match="process group"):
        read_in_parallel(make_model("mixture"), tokens(1, 4))


def test_the_complete_site_is_refused(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        with pytest.raises(InputError, match="complete"):
            read_in_parallel(make_model("complete"), tokens(1, 4))
        model, ids = make_model("mixture"), tokens(1, 9)
        with torch.no_grad():
            assert torch.equal(read_in_parallel(model, ids).logits, model(ids).logits)
    finally:
        dist.destroy_process_group()
