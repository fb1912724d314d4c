"""Promise 13: peak memory grows linearly with the length, forwards, backwards and with a state kept."""

import gc
import itertools
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sheafstate.nn import block
from tests.variants import SMALL, VARIANTS, make_model, tokens

from .promises import Mutation, contract

ONE_BLOCK = Mutation(
    "ops/banded.py",
    "    block = min(block, length)\n",
    "    block = length\n",
    "the banded softmax takes the whole row for one block",
)
ONE_CHUNK = Mutation(
    "ops/scan.py",
    "        chunk = min(chunk, length)\n",
    "        chunk = length\n",
    "the scan takes the whole row for one chunk",
)

WHOLE = Mutation(
    "nn/block.py",
    "x.shape[1] > PIECE:",
    "x.shape[1] > 10**9:",
    "a layer reads a text of any length at once",
)

LINEAR = [name for name in VARIANTS if name != "complete"]
LENGTHS = (512, 1024, 2048)


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside have held at one time. Exact and repeatable, unlike a process's size."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._note(tensor.untyped_storage())
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.held += size
        self.most = max(self.most, self.held)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.held -= size


def forward(model: torch.nn.Module, ids: torch.Tensor) -> None:
    with torch.no_grad():
        model(ids, use_cache=True, logits_to_keep=1)


def backward(model: torch.nn.Module, ids: torch.Tensor) -> None:
    model(ids, labels=ids, use_cache=False).loss.backward()


def diagnosis(model: torch.nn.Module, ids: torch.Tensor) -> None:
    with torch.no_grad():
        model(ids, output_site=True, use_cache=False)


RUNS = {"forward": forward, "backward": backward, "diagnosis": diagnosis}


def peak(name: str, run: str, length: int, **options: object) -> int:
    model, ids = make_model(name, torch.float32, num_layers=1, **options), tokens(1, length)
    gc.collect()
    with Peak() as measured:
        RUNS[run](model, ids)
    return measured.most


def assert_linear(small: int, middle: int, large: int) -> None:
    """Twice the length adds twice as much again: 2 for a line, 4 for a square, whatever the constant part."""
    growth = (large - middle) / (middle - small)
    assert 1.8 < growth < 2.2, (small, middle, large)
    assert large < 4.2 * small


@contract(13, breaks=(ONE_BLOCK, ONE_CHUNK))
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", ["mixture", "window"])
def test_peak_memory_grows_linearly(name, run, unchecked_shapes) -> None:
    assert_linear(*(peak(name, run, length) for length in LENGTHS))


@contract(13, breaks=WHOLE)
def test_reading_takes_little_more_for_a_longer_text(unchecked_shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a piece, a position costs its residual stream in and out of a layer, and what tells documents apart."""
    monkeypatch.setattr(block, "PIECE", 256)
    small, large = (peak("mixture", "forward", length, num_experts=0) for length in (1024, 2048))
    width = SMALL["d_model"] * torch.float32.itemsize
    assert (large - small) / 1024 < 4 * width + 128


@pytest.mark.slow
@contract(13)
@pytest.mark.parametrize("quantization", ["none", "int8", "ternary"])
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", LINEAR)
def test_peak_memory_grows_linearly_for_every_kind(name, run, quantization, unchecked_shapes) -> None:
    assert_linear(*(peak(name, run, length, quantization=quantization) for length in (1024, 2048, 4096)))


def test_a_square_is_seen(unchecked_shapes) -> None:
    """The complete site reads all pairs, and shows it."""
    with pytest.raises(AssertionError):
        assert_linear(*(peak("complete", "diagnosis", length) for length in LENGTHS))


CHILD = """
import sys
import torch
torch.set_num_threads(1)
from sheafstate import SheafStateConfig, SheafStateForCausalLM
config = SheafStateConfig(vocab_size=64, d_model=64, num_layers=2, d_head=16, d_ff=64)
model = SheafStateForCausalLM(config).train()
ids = torch.randint(64, (1, int(sys.argv[1])))
model(ids, labels=ids, use_cache=False).loss.backward()
status = open("/proc/self/status").read().splitlines()  # getrusage counts what the parent held when it forked
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the highest memory of a process")
@contract(13)
def test_the_memory_of_a_process_grows_linearly() -> None:
    """What the system counts, temporaries inside kernels included; with wide margins, as allocators round."""
    sizes = []
    for length in (64, 4096, 8192, 16384):
        command = [sys.executable, "-c", CHILD, str(length)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
        sizes.append(int(done.stdout))
    base, *grown = (size - sizes[0] for size in sizes)
    assert base == 0
    assert all(1.5 < large / small < 2.6 for small, large in itertools.pairwise(grown)), sizes
