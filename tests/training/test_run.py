"""A run learns, measures what it says, and leaves a folder that others can use."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from sheafstate import SheafStateForCausalLM
from sheafstate.data import PackedRows, TokenStream, load_tokenizer, read_documents
from sheafstate.errors import InputError
from sheafstate.evaluation import evaluate
from sheafstate.training import train
from sheafstate.training.callbacks import read_history
from sheafstate.training.model import build_model
from sheafstate.training.trainer import decaying_parameters

from .conftest import BATCH, CONTEXT, SMALL, StopAt, build_llama

BUILDERS = {"sheaf": build_model, "llama": build_llama}


def losses(folder: Path) -> list[float]:
    return [record["loss"] for record in read_history(folder / "history.jsonl") if "loss" in record]


@pytest.fixture(scope="module")
def finished(page, held_out, tmp_path_factory):
    from sheafstate.training import TrainingOptions

    options = TrainingOptions(
        data=page,
        validation_data=held_out,
        out=tmp_path_factory.mktemp("finished") / "run",
        tokenizer="char",
        overrides=SMALL,
        context=CONTEXT,
        batch_size=BATCH,
        steps=60,
        learning_rate=1e-2,
        validate_every=25,
        save_every=20,
        seed=3,
        progress=False,
        cpu=True,
    )
    return options, train(options)


def test_it_learns(finished) -> None:
    _, result = finished
    found = losses(result.out)
    assert found[0] == pytest.approx(np.log(len(result.tokenizer)), abs=0.3), "it begins at a guess"
    assert found[-1] < found[0] - 1


def test_its_folder_loads_anywhere(finished, held_out) -> None:
    _, result = finished
    model = AutoModelForCausalLM.from_pretrained(result.out)
    tokenizer = AutoTokenizer.from_pretrained(result.out)
    assert isinstance(model, SheafStateForCausalLM)
    assert model.config.vocab_size == len(tokenizer)
    saved = [result.out, *result.out.glob("checkpoint-*")]
    assert [json.loads((folder / "config.json").read_text())["use_cache"] for folder in saved] == [True] * 3
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    text = held_out.read_text()
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    ids = torch.tensor([tokenizer("Exeunt").input_ids])
    assert torch.equal(model(ids).logits, result.model.eval()(ids).logits)


def test_its_figures_are_those_of_the_text(finished, held_out) -> None:
    options, result = finished
    again = evaluate(result.model, result.tokenizer, read_documents(held_out), context=options.context, carry=False)
    assert result.metrics["val_nats_per_token"] == pytest.approx(again.nats_per_token, rel=1e-6)
    assert result.metrics["val_bits_per_byte"] == pytest.approx(again.bits_per_byte, rel=1e-6)
    assert again.tokens == again.bytes == sum(map(len, read_documents(held_out)))


def test_its_metrics_say_how_they_came_about(finished) -> None:
    options, result = finished
    metrics = json.loads((result.out / "metrics.json").read_text())
    assert metrics == result.metrics
    assert metrics["train_tokens"] == 60 * BATCH * CONTEXT
    assert metrics["parameters"] == sum(p.numel() for p in result.model.parameters())
    assert metrics["parameters"] - metrics["parameters_without_embedding"] == len(result.tokenizer) * SMALL["d_model"]
    assert metrics["seed"] == options.seed
    assert metrics["seconds"] > 0
    assert metrics["processes"] == 1
    assert metrics["threads"] == torch.get_num_threads()
    assert metrics["versions"]["torch"] == torch.__version__
    assert {"command", "commit", "machine"} <= metrics.keys()


def test_its_history_is_whole(finished) -> None:
    _, result = finished
    records = read_history(result.out / "history.jsonl")
    trained = [record for record in records if "loss" in record]
    measured = [record for record in records if "val_nats_per_token" in record]
    assert [record["step"] for record in trained] == [1, 10, 20, 30, 40, 50, 60]
    assert [record["step"] for record in measured] == [25, 50, 60]
    assert all({"learning_rate", "grad_norm", "tokens", "seconds", "epoch"} <= record.keys() for record in trained)
    assert measured[-1]["val_nats_per_token"] == result.metrics["val_nats_per_token"]
    assert records == sorted(records, key=lambda record: record["seconds"])


def test_tensorboard_reads_its_log(finished) -> None:
    _, result = finished
    log = EventAccumulator(str(result.out / "logs")).Reload()
    assert {"train/loss", "eval/nats_per_token", "eval/bits_per_byte"} <= set(log.Tags()["scalars"])
    assert [event.step for event in log.Scalars("eval/nats_per_token")] == [25, 50, 60]


def test_it_leaves_no_pickle_and_nothing_unfinished(finished) -> None:
    _, result = finished
    names = {path.name for path in result.out.rglob("*")}
    assert not {name for name in names if name.endswith(".bin") and name != "tokens.bin"}
    assert {path.name for path in result.out.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        *("options.json", "metrics.json", "history.jsonl", "logs", "data", "checkpoint-40", "checkpoint-60"),
    }


@pytest.mark.parametrize("name", BUILDERS)
def test_packed_documents_do_not_reach_each_other(name: str, options) -> None:
    tokenizer = load_tokenizer("byte")
    torch.manual_seed(0)
    model = BUILDERS[name](options(), tokenizer).double().eval()
    way = "document_ids" if name == "sheaf" else "position_ids"

    def logits(first: str) -> torch.Tensor:
        stream = TokenStream.build(tokenizer, [first, "behind it"])
        row = PackedRows(stream, len(stream), documents=way)[0]
        inputs = {key: torch.from_numpy(value)[None] for key, value in row.items() if key != "labels"}
        return model(**inputs, use_cache=False).logits[0, -len("behind it") - 2 :]

    torch.testing.assert_close(logits("in front"), logits("no match"), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "way"), [("sheaf", "document_ids"), ("llama", "position_ids")])
def test_a_run_tells_documents_apart_in_the_models_way(name: str, way: str, options) -> None:
    seen = []

    def build(options, tokenizer):
        model = BUILDERS[name](options, tokenizer)
        model.register_forward_pre_hook(lambda _, __, named: seen.append((model.training, named)), with_kwargs=True)
        return model

    train(options(), build=build)
    trained = [named for training, named in seen if training]
    assert all({"input_ids", "labels", way, "num_items_in_batch"} == named.keys() for named in trained)
    assert any(named[way].diff().abs().max() > 0 for named in trained)


@pytest.mark.parametrize("name", BUILDERS)
def test_parts_of_a_batch_add_up(name: str, options, tmp_path) -> None:
    """Rows differ in how many labels they have, so a mean of the parts' means would be off."""
    for parts in (1, 4):
        train(options(out=tmp_path / str(parts), accumulate=parts), build=BUILDERS[name])
    assert losses(tmp_path / "4") == pytest.approx(losses(tmp_path / "1"), rel=1e-5)


def test_the_experts_balance_adds_up_too(options, tmp_path) -> None:
    for parts in (1, 2):
        train(
            options(
                out=tmp_path / str(parts), accumulate=parts, steps=16, overrides=SMALL | {"router_aux_loss_coef": 1.0}
            )
        )
    assert losses(tmp_path / "2") == pytest.approx(losses(tmp_path / "1"), rel=1e-5)


def test_gradient_checkpointing_changes_nothing(options, tmp_path) -> None:
    train(options(out=tmp_path / "plain"))
    train(options(out=tmp_path / "again", gradient_checkpointing=True))
    assert losses(tmp_path / "again") == pytest.approx(losses(tmp_path / "plain"), rel=1e-5)


def test_bfloat16_stays_close(options, tmp_path) -> None:
    train(options(out=tmp_path / "full", steps=20))
    result = train(options(out=tmp_path / "half", steps=20, bf16=True))
    assert {parameter.dtype for parameter in result.model.parameters()} == {torch.float32}
    full, half = losses(tmp_path / "full"), losses(tmp_path / "half")
    assert half != full
    assert half == pytest.approx(full, abs=0.1)


def test_compiling_without_a_compiler_is_a_sentence(options, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler"):
        train(options(compile=True))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="needs a C++ compiler")
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_compiling_changes_nothing(options, tmp_path) -> None:
    train(options(out=tmp_path / "plain", validate_every=2))
    train(options(out=tmp_path / "compiled", validate_every=2, compile=True))
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0, 0.5, 1, 0.75, 0.25]),
        ("wsd", [0, 0.5, 1, 1, 0.5]),
        ("constant", [0, 0.5, 1, 1, 1]),
    ],
)
def test_schedules(schedule: str, expected: list[float], options, tmp_path) -> None:
    shape = {"steps": 5, "warmup": 0.4, "decay": 0.4, "learning_rate": 1.0e-3}
    train(options(schedule=schedule, **shape))
    rates = [r["learning_rate"] / 1e-3 for r in read_history(tmp_path / "run/history.jsonl") if "learning_rate" in r]
    assert rates == pytest.approx(expected, abs=1e-6)


def test_equal_seeds_are_equal_runs(options, tmp_path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        train(options(out=tmp_path / name, seed=seed))
    assert losses(tmp_path / "one") == losses(tmp_path / "two") != losses(tmp_path / "other")


def test_without_a_validation_text_nothing_is_measured(options) -> None:
    result = train(options(validation_data=None, validation_share=0))
    assert result.metrics["val_nats_per_token"] is None
    assert all("val_nats_per_token" not in record for record in read_history(result.out / "history.jsonl"))


def test_a_run_in_the_folder_is_kept_unless_told_otherwise(options) -> None:
    out = train(options()).out
    (out / "notes.txt").write_text("mine")
    before = (out / "history.jsonl").read_text()
    with pytest.raises(InputError, match="holds a run already"):
        train(options())
    assert (out / "history.jsonl").read_text() == before
    train(options(overwrite=True, steps=2))
    assert (out / "notes.txt").read_text() == "mine"
    assert len(losses(out)) == 2
    assert sorted(path.name for path in out.glob("checkpoint-*")) == ["checkpoint-2"]


def test_texts_too_short_are_refused(options, tmp_path) -> None:
    for length, reason in (
        (5, "7 tokens, fewer than one row of 16"),
        (40, "2 rows of 16 tokens, fewer than a batch of 4"),
    ):
        path = tmp_path / "short.txt"
        path.write_text("x" * length)
        with pytest.raises(InputError, match=reason):
            train(options(data=path, overwrite=True))


def test_a_folder_that_is_a_file_is_refused(options, tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        train(options(out=tmp_path / "file"))


def test_the_vocabulary_follows_from_the_tokenizer(options) -> None:
    with pytest.raises(InputError, match=r"vocab_size follows from the tokenizer \(257 tokens\)"):
        train(options(overrides=SMALL | {"vocab_size": 300}))


def test_the_mark_before_a_text_is_learned(options) -> None:
    """It is also the id that pads, whose embedding PyTorch would leave alone."""
    tokenizer = load_tokenizer("byte")
    model = build_model(options(overrides=SMALL | {"tie_word_embeddings": False}), tokenizer)
    assert model.config.pad_token_id == model.generation_config.pad_token_id == tokenizer.bos_token_id
    ids = torch.tensor([[tokenizer.bos_token_id, 5, 6]])
    model(input_ids=ids, labels=ids).loss.backward()
    assert model.get_input_embeddings().weight.grad[tokenizer.bos_token_id].abs().sum() > 0


def test_a_run_that_runs_away_stops_with_a_sentence(options, tmp_path) -> None:
    def build(options, tokenizer):
        model = build_llama(options, tokenizer)
        with torch.no_grad():
            model.model.norm.weight.fill_(float("nan"))
        return model

    with pytest.raises(InputError, match="ran away: loss is nan at step 1"):
        train(options(save_every=1), build=build)
    assert not list((tmp_path / "run").glob("checkpoint-*"))


def test_a_run_that_is_stopped_early_says_so(options) -> None:
    result = train(options(), callbacks=[StopAt(2)])
    assert result.metrics["steps"] == 2
    assert result.metrics["val_nats_per_token"] is not None


def test_only_matrices_decay(options) -> None:
    model = build_model(options(), load_tokenizer("byte"))
    decaying = set(decaying_parameters(model))
    shapes = {name: parameter.ndim for name, parameter in model.named_parameters()}
    assert decaying
    assert all(shapes[name] > 1 for name in decaying)
    kept = ("norm", "embed", "bias", "conv", "shift")
    assert not {name for name in decaying if any(part in name for part in kept)}
    assert all(any(part in name for name in shapes) for part in kept), "the names are those that the model has"
    assert any("in_proj" in name for name in decaying)
    assert any("experts.up" in name for name in decaying)
    chosen = next(iter(sorted(decaying)))
    model.get_parameter(chosen)._no_weight_decay = True
    assert set(decaying_parameters(model)) == decaying - {chosen}


def test_the_plain_trainer_takes_model_and_rows(options, tmp_path, page) -> None:
    tokenizer = load_tokenizer("byte")
    stream = TokenStream.build(tokenizer, read_documents(page))
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-2,
        logging_steps=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    rows = PackedRows(stream, CONTEXT)
    trainer = Trainer(
        model=build_model(options(), tokenizer),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
    )
    trainer.train()
    found = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert found[0] == pytest.approx(np.log(257), abs=0.3)
    assert found[-1] < found[0]
    assert trainer.evaluate()["eval_loss"] < found[0]
