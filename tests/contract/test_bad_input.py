"""Bad input costs one clear sentence and a status that is not 0, and nothing that was saved."""

import json
import math
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from sheafstate import SheafStateConfig
from sheafstate.config import CHOICES, EVEN, LEAST, MOST, POSITIVE, SWITCHES
from sheafstate.errors import InputError
from sheafstate.evaluation import load_checkpoint
from sheafstate.training import last_checkpoint
from sheafstate.training.callbacks import Pace
from tests.checkpoints import save_small_checkpoint
from tests.variants import examples

from .promises import Mutation, contract
from .small_runs import command, contents, losses, train_arguments, write_page

USES = (
    ("generate", "CHECKPOINT", "To be", "--max-new-tokens", 2, "--threads", 1),
    ("evaluate", "CHECKPOINT", "--data", "DATA", "--threads", 1),
    ("inspect", "CHECKPOINT", "To be", "--threads", 1),
)
NEEDED = ("config.json", "model.safetensors", "tokenizer.json")
NESTED = Mutation(
    "evaluation/checkpoint.py",
    "except (OSError, ValueError, RecursionError) as error:",
    "except (OSError, ValueError) as error:",
    "a configuration that nests too deep ends in another error",
)
NO_NUMBERS = Mutation(
    "evaluation/checkpoint.py",
    "weight.is_floating_point() and not torch.isfinite(weight).all()",
    "weight.is_floating_point() and torch.isnan(weight).all()",
    "a checkpoint with some values that are no numbers is used",
)
UNCHECKED = Mutation(
    "config.py",
    "not least <= value <= most:",
    "value < least:",
    "a huge number in the configuration is taken",
)
HASTY = Mutation(
    "training/run.py",
    "        resume_from = _look(options, out)\n",
    "        resume_from = _look(options, out)\n        _remove_run(out) if options.overwrite else None\n",
    "an order that cannot be carried out removes the run that it should overwrite",
)
SILENT = Mutation(
    "cli/train.py",
    "        typer.echo(_interrupted(last_checkpoint(out)), err=True)\n",
    "        pass\n",
    "Ctrl-C does not say how to go on",
)
EMPTY = Mutation(
    "data/sources.py",
    "    if not any(documents):",
    "    if documents is None:",
    "a text that holds nothing is measured on",
)


def is_told(status: int, out: str, err: str) -> str:
    """The one sentence of a refusal."""
    assert status in (1, 2), (status, out, err)
    assert err.startswith("error: "), err
    assert err.count("\n") == 1
    for sign in ("Traceback", "error: unexpected ", "SHEAFSTATE_TRACEBACK"):
        assert sign not in err
    return err


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("page"))


def use(which: tuple, checkpoint: Path, data: Path) -> tuple[int, str, str]:
    return command(*({"CHECKPOINT": checkpoint, "DATA": data}.get(part, part) for part in which))


def damage(path: Path, how: str, at: float) -> None:
    """Spoil a file so that nobody can take it for whole."""
    raw = path.read_bytes()
    cut = int(at * (len(raw) - 2))
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "missing":
        path.write_bytes({"cut": raw[:cut], "junk": os.urandom(64) + b"\0", "deep": b"[" * 100_000}[how])


@contract(26, breaks=NESTED)
@given(
    which=st.sampled_from(USES),
    name=st.sampled_from(NEEDED),
    how=st.sampled_from(("missing", "folder", "cut", "junk", "deep")),
    at=st.floats(0, 1),
)
@examples(20)
def test_a_checkpoint_with_a_spoilt_file_is_refused(
    good: Path, page: Path, which: tuple, name: str, how: str, at: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        shutil.copytree(good, checkpoint)
        damage(checkpoint / name, how, at)
        before = contents(checkpoint)
        assert str(checkpoint) in is_told(*use(which, checkpoint, page))
        assert contents(checkpoint) == before


HEADS = st.sampled_from(
    [{}, {"local": 0}, {"local": -1}, {"local": True}, {"local": 1.0}, {"local": 2**40}, {"locale": 1}, {"": 1}, [1], 3]
)
NO_WHOLE = st.sampled_from([True, 1.0, "1", None, [1], {"a": 1}, math.nan, math.inf, MOST + 1, 10**30, -(2**70)])
NO_POSITIVE = st.sampled_from([True, 0, -1.0, "1", None, [1.0], math.nan, math.inf, 10**400])
NO_SWITCH = st.sampled_from([0, 1, "true", None, [], 1.0])
NO_CHOICE = st.sampled_from(["", "Sheaf", "none ", None, 0, True, ["sheaf"], {}])
NO_TOKEN = st.sampled_from([-1, 257, 10**30, 1.0, True, "0", {}])
IMPOSSIBLE = st.one_of(
    st.tuples(st.just("heads"), HEADS),
    st.sampled_from(sorted(LEAST)).flatmap(lambda n: st.tuples(st.just(n), st.one_of(NO_WHOLE, st.just(LEAST[n] - 1)))),
    st.tuples(st.sampled_from(EVEN), st.integers(1, 500).map(lambda half: 2 * half + 1)),
    st.tuples(st.sampled_from(POSITIVE), NO_POSITIVE),
    st.tuples(st.sampled_from(SWITCHES), NO_SWITCH),
    st.tuples(st.sampled_from(sorted(CHOICES)), NO_CHOICE),
    st.tuples(st.sampled_from(("bos_token_id", "pad_token_id", "eos_token_id")), NO_TOKEN),
    st.tuples(st.just("dtype"), st.sampled_from(["float33", "nn", 3, [], "float32 "])),
)


@contract(26, breaks=UNCHECKED)
@given(field=IMPOSSIBLE)
@example(field=("window", MOST + 1))
@examples(60)
def test_an_impossible_configuration_names_the_field(field: tuple) -> None:
    name, value = field
    for build in (SheafStateConfig, lambda **fields: SheafStateConfig.from_preset("tiny", **fields)):
        with pytest.raises(InputError) as caught:
            build(**({"vocab_size": 257} | {name: value}))
        sentence = str(caught.value)
        assert name in sentence
        assert "\n" not in sentence


@contract(26)
@given(field=IMPOSSIBLE, which=st.sampled_from(USES))
@examples(8)
def test_an_impossible_configuration_on_disk_is_refused(good: Path, page: Path, field: tuple, which: tuple) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        shutil.copytree(good, checkpoint)
        path = checkpoint / "config.json"
        fields = json.loads(path.read_text()) | {field[0]: field[1]}
        path.write_text(json.dumps(fields))
        assert field[0] in is_told(*use(which, checkpoint, page))


@contract(26, breaks=NO_NUMBERS)
@given(data=st.data())
@examples(8)
def test_weights_that_do_not_serve_are_refused(good: Path, data: st.DataObject) -> None:
    weights = load_file(good / "model.safetensors")
    name = data.draw(st.sampled_from(sorted(weights)))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        shutil.copytree(good, checkpoint)
        how = data.draw(st.sampled_from(("number", "number", "shape", "lost", "kind")))
        if how == "number":
            flat = weights[name].flatten().clone()
            flat[data.draw(st.integers(0, len(flat) - 1))] = data.draw(st.sampled_from((math.nan, math.inf, -math.inf)))
            weights[name] = flat.view(weights[name].shape)
        elif how == "shape":
            weights[name] = torch.ones(data.draw(st.lists(st.integers(90, 99), min_size=1, max_size=3)))
        elif how == "lost":
            del weights[name]
        else:
            weights[name] = torch.ones((*weights[name].shape, 1), dtype=torch.bool)
        save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(InputError) as caught:
            load_checkpoint(checkpoint)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value) or how in ("shape", "kind")


TEXTS = {
    "empty": b"",
    "no-text": b"<|endoftext|>\n<|endoftext|>",
    "binary": b"\x7fELF\0\0\1",
    "latin": "caf\u00e9".encode("latin-1"),
    "short": b"a",
    "half.jsonl": b'{"text": "a"}\n{"text": ',
    "surrogate.jsonl": b'{"text": "\\ud800"}',
    "other.jsonl": b'{"story": "a"}',
}
USELESS = sorted(TEXTS.keys() - {"short"})


@contract(26, breaks=EMPTY)
@pytest.mark.parametrize("name", [*USELESS, "missing", "folder", "a\0b", "x" * 300])
def test_text_that_is_none_is_refused(name: str, good: Path, tmp_path: Path) -> None:
    data = tmp_path / name
    if name in TEXTS:
        data.write_bytes(TEXTS[name])
    elif name == "folder":
        data.mkdir()
    out = tmp_path / "run"
    assert str(data).replace("\0", "\\x00") in is_told(*command("evaluate", good, "--data", data))
    is_told(*command(*train_arguments(data, out)))
    assert not (out / "options.json").exists(), "what could not begin does not keep the folder"


@contract(26)
def test_text_shorter_than_a_window_is_used_or_refused(good: Path, tmp_path: Path) -> None:
    data = tmp_path / "short.txt"
    data.write_bytes(TEXTS["short"])
    assert command("evaluate", good, "--data", data, "--json")[0] == 0
    assert command("inspect", good, "a")[0] == 0
    assert command("generate", good, "a", "--max-new-tokens", 1)[0] == 0
    assert "fewer than one row of 16" in is_told(*command(*train_arguments(data, tmp_path / "run")))
    assert "is too short for" in is_told(*command("evaluate", good, "--data", data, "--validation-share", 0.5))


ODD = ("-1", "0", "nan", "inf", "1e400", "9" * 400, "x", "", "[", "\udcff", "true", "1e-320")
ORDERS = (
    *(
        ("generate", "CHECKPOINT", "a", option)
        for option in ("--temperature", "--top-p", "--top-k", "--max-new-tokens")
    ),
    *(("generate", "CHECKPOINT", "a", option) for option in ("--seed", "--threads", "--stop")),
    *(("evaluate", "CHECKPOINT", "--data", "DATA", option) for option in ("--context", "--stride", "--batch-size")),
    *(("evaluate", "CHECKPOINT", "--data", "DATA", option) for option in ("--validation-share", "--threads")),
    *(("inspect", "CHECKPOINT", "a", option) for option in ("--token", "--focus", "--layer", "--threads")),
    *(("estimate", option) for option in ("--preset", "--set", "--context", "--dtype")),
    *(
        ("estimate", "--set", f"{name}=")
        for name in ("window", "d_model", "rope_theta", "heads", "output_gate", "site")
    ),
    *(("simulate", "-n", "64", option) for option in ("--preset", "--set", "--sweep", "--seed")),
    *(("simulate", "-n", "64", "--set", f"{name}=") for name in ("entities", "mentions", "window", "entity_skew")),
)


@contract(26)
@given(order=st.sampled_from(ORDERS), value=st.sampled_from(ODD))
@examples(20)
def test_odd_arguments_are_used_or_refused(good: Path, page: Path, order: tuple, value: str) -> None:
    *words, last = (str({"CHECKPOINT": good, "DATA": page}.get(part, part)) for part in order)
    line = [*words, last + value] if last.endswith("=") else [*words, last, value]
    status, out, err = command(*line)
    if status:
        is_told(status, out, err)


@pytest.fixture(scope="module")
def run(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps that saved every two of them."""
    out = tmp_path_factory.mktemp("run") / "run"
    assert command(*train_arguments(page, out, "--save-every", 2, "--steps", 8))[0] == 0
    return out


BAD_ORDERS = (
    ("--data", "nowhere.txt"),
    ("--validation-data", "nowhere.txt"),
    ("--tokenizer", "words"),
    ("--tokenizer", "bpe:7"),
    ("--preset", "huge"),
    ("--set", "d_head=3"),
    ("--set", "d_model=16777216"),
    ("--set", "num_layers=100000"),
    ("--context", "1000000"),
    ("--batch-size", "5000"),
    ("--seed", "-1"),
    ("--seed", str(2**32)),
    ("--lr", "nan"),
    ("--steps", "0"),
    ("--schedule", "linear"),
    ("--accumulate", "3"),
)


@contract(26, breaks=HASTY)
@given(bad=st.sampled_from(BAD_ORDERS), how=st.sampled_from(("--overwrite", "--resume", "--overwrite")))
@examples(12)
def test_a_bad_order_loses_nothing(page: Path, run: Path, bad: tuple, how: str) -> None:
    before = contents(run, lambda path: ".saving" in path.parts)
    is_told(*command(*train_arguments(page, run, "--steps", 8, *bad, how)))
    assert contents(run, lambda path: ".saving" in path.parts) == before


@contract(26, breaks=SILENT)
@given(step=st.integers(1, 7))
@examples(2)
def test_ctrl_c_says_how_to_go_on(page: Path, run: Path, step: int) -> None:
    whole = Pace.on_step_end

    def interrupted(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise KeyboardInterrupt
        return whole(self, args, state, control, **kwargs)

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        order = train_arguments(page, out, "--save-every", 2, "--steps", 8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Pace, "on_step_end", interrupted)
            status, _, err = command(*order)
        assert status == 130
        assert "Traceback" not in err
        assert "--resume" in err
        last = last_checkpoint(out)
        assert (str(last) in err) if last else "begins anew" in err
        assert command(*order, "--resume")[0] == 0
        assert losses(out) == losses(run)
        assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
