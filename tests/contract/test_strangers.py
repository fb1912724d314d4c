"""Files from others never run code: whatever lies in a folder, a canary that code would leave does not appear."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from sheafstate.data import load_tokenizer
from sheafstate.errors import InputError
from sheafstate.evaluation import load_checkpoint
from sheafstate.training.checkpoints import is_whole
from tests.checkpoints import save_small_checkpoint
from tests.variants import examples

from .promises import Mutation, contract
from .small_runs import command, train_arguments, write_page

PICKLES = Mutation(
    "evaluation/checkpoint.py", "use_safetensors=True", "use_safetensors=None", "weights are read from pickles as well"
)
OBJECTS = Mutation(
    "data/tokens.py",
    'np.load(folder / "starts.npy", allow_pickle=False)',
    'np.load(folder / "starts.npy", allow_pickle=True)',
    "an array of objects is unpickled",
)
ANY_TOKENIZER = Mutation(
    "data/tokenizers.py",
    "        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)",
    "        from transformers import AutoTokenizer\n\n"
    "        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)",
    "a tokenizer that names code is given to transformers, which offers to run it",
)


class Payload:
    """Leaves the canary when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.system, (f"touch {self.canary}",)


def code(canary: Path) -> str:
    """A module that leaves the canary when it is imported, and has whatever classes one may want of it."""
    classes = "\n".join(f"class {name}: pass" for name in ("Config", "Model", "Tokenizer", "Builder"))
    return f"open({str(canary)!r}, 'w').close()\n{classes}\ndef generate(*a, **b): pass\n"


def change(path: Path, **fields: Any) -> None:
    known = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(known | fields))


def pickles(folder: Path, canary: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "adapter_model.bin", "tokenizer.pkl"):
        torch.save({"a": Payload(canary)}, folder / name)


def modules(folder: Path, canary: Path) -> None:
    for name in ("evil.py", "modeling_sheafstate.py", "data.py", f"{folder.name}.py", "conftest.py", "__init__.py"):
        (folder / name).write_text(code(canary))
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(code(canary))


def code_map(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    change(folder / "config.json", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})


def nested_code_map(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    change(folder / "config.json", model_type="llava", text_config={"auto_map": {"AutoConfig": "evil.Config"}})


def kernels(folder: Path, canary: Path) -> None:
    change(folder / "config.json", attn_implementation="stranger/kernel", _attn_implementation="stranger/kernel")


def tokenizer_code_map(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    places = {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}
    change(folder / "tokenizer_config.json", auto_map=places, tokenizer_class="Tokenizer")


def templates(folder: Path, canary: Path) -> None:
    hostile = "{{ cycler.__init__.__globals__.os.system('touch " + str(canary) + "') }}"
    (folder / "chat_template.jinja").write_text(hostile)
    change(folder / "tokenizer_config.json", chat_template=hostile)
    change(folder / "generation_config.json", custom_generate="custom_generate", penalty_alpha=0.6, top_k=4)


def adapter(folder: Path, canary: Path) -> None:
    """PEFT imports the module that a configuration names as the core of Megatron."""
    modules(folder, canary)
    change(
        folder / "adapter_config.json",
        peft_type="LORA",
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(folder),
        target_modules=["in_proj", "out_proj"],
        megatron_config={},
        megatron_core="evil",
    )


def index_of_pickles(folder: Path, canary: Path) -> None:
    pickles(folder, canary)
    names = dict.fromkeys(load_file(folder / "model.safetensors"), "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": names}))


TRAPS = (pickles, modules, code_map, nested_code_map, kernels, tokenizer_code_map, templates, adapter, index_of_pickles)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page"))


def inside(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """As a person works who has gone into the folder, and says yes to whatever is asked."""
    patch.chdir(folder)
    patch.syspath_prepend(str(folder))
    patch.setattr("builtins.input", lambda *_: "y")


@contract(27)
@given(traps=st.lists(st.sampled_from(TRAPS), min_size=1, max_size=3, unique=True))
@examples(2)
def test_no_command_runs_what_a_checkpoint_holds(good: Path, page: Path, traps: list) -> None:
    spring(good, page, traps)


@contract(27, breaks=ANY_TOKENIZER)
@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_no_trap_is_sprung(good: Path, page: Path, trap) -> None:
    spring(good, page, [trap])


def spring(good: Path, page: Path, traps: list) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        checkpoint, canary = Path(name) / "checkpoint", Path(name) / "canary"
        shutil.copytree(good, checkpoint)
        for trap in traps:
            if trap is not index_of_pickles or (checkpoint / "model.safetensors").is_file():
                shutil.rmtree(checkpoint / "custom_generate", ignore_errors=True)
                trap(checkpoint, canary)
        inside(checkpoint, patch)
        command("generate", checkpoint, "To be", "--max-new-tokens", 2)
        command("inspect", ".", "To be")
        command("evaluate", checkpoint, "--data", page)
        command("report", checkpoint)
        command(*train_arguments(page, Path(name) / "run", "--tokenizer", checkpoint, "--steps", 1))
        assert not canary.exists()
        assert "evil" not in sys.modules


@contract(27, breaks=PICKLES)
def test_weights_are_read_from_safetensors_alone(good: Path, tmp_path: Path) -> None:
    """Even a pickle without any harm in it."""
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(good, checkpoint)
    torch.save(load_file(checkpoint / "model.safetensors"), checkpoint / "pytorch_model.bin")
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"cannot be loaded.*safetensors"):
        load_checkpoint(checkpoint)


def script(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    change(folder / "dataset_infos.json", default={"builder_name": "evil"})


def formats(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    change(folder / "state.json", _format_type="custom", _format_kwargs={"transform": "evil.generate"})


def features(folder: Path, canary: Path) -> None:
    modules(folder, canary)
    kind = {"dtype": "string", "_type": "evil.Builder"}
    change(folder / "dataset_info.json", features={"text": kind}, builder_name="evil", config_name="evil")


@contract(27)
@pytest.mark.parametrize("trap", [script, formats, features], ids=lambda trap: trap.__name__)
def test_a_dataset_runs_nothing(good: Path, tmp_path: Path, trap, monkeypatch: pytest.MonkeyPatch) -> None:
    data, canary = tmp_path / "data", tmp_path / "canary"
    Dataset.from_dict({"text": ["to be", "or not"]}).save_to_disk(data)
    trap(data, canary)
    inside(data, monkeypatch)
    command("evaluate", good, "--data", data)
    command(*train_arguments(data, tmp_path / "run"))
    assert not canary.exists()
    assert "evil" not in sys.modules


@contract(27)
def test_modules_in_a_folder_of_texts_are_texts(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    modules(tmp_path / "data", tmp_path / "canary")
    inside(tmp_path / "data", monkeypatch)
    assert command("evaluate", good, "--data", ".", "--json")[0] == 0
    assert not (tmp_path / "canary").exists()


RESUME_FILES = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


@contract(27, breaks=OBJECTS)
@pytest.mark.parametrize("name", [*RESUME_FILES, "starts.npy", "training_args.bin", "pytorch_model.bin"])
def test_a_resume_runs_nothing(page: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's own folder, into which somebody else has put a file."""
    run, canary = tmp_path / "run", tmp_path / "canary"
    order = train_arguments(page, run, "--save-every", 2)
    assert command(*order, "--steps", 2, "--schedule", "constant")[0] == 0
    checkpoint = run / "checkpoint-2"
    if name == "starts.npy":
        np.save(run / "data/train" / name, np.array([Payload(canary)], dtype=object), allow_pickle=True)
    else:
        torch.save(Payload(canary), checkpoint / name)
        sizes = {path.name: path.stat().st_size for path in checkpoint.iterdir() if path.name != "complete.json"}
        (checkpoint / "complete.json").write_text(json.dumps(sizes))
        assert is_whole(checkpoint)
    inside(tmp_path, monkeypatch)
    status, _, err = command(*order, "--steps", 4, "--resume", "--schedule", "constant")
    assert not canary.exists()
    if name in (*RESUME_FILES, "starts.npy"):
        assert status == 1
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert "unexpected" not in err


@contract(27)
@pytest.mark.parametrize("spec", ["byte", "char", "bpe:300"])
def test_what_we_leave_for_others_is_safetensors_and_json(page: Path, tmp_path: Path, spec: str) -> None:
    assert command(*train_arguments(page, tmp_path / "run", "--tokenizer", spec, "--steps", 1))[0] == 0
    left = {path.suffix for path in (tmp_path / "run").iterdir() if path.is_file()}
    assert left <= {".safetensors", ".json", ".jsonl", ".jinja"}
    load_tokenizer(tmp_path / "run")
