"""``sheafstate generate``: a text as it comes, the same for the same seed, in the words of the tokenizer alone."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from sheafstate.cli.generate import _write
from sheafstate.data import load_tokenizer
from tests.variants import make_model

SHORT = ["--max-new-tokens", "12", "--threads", "1"]


def test_what_streams_is_what_json_says(checkpoint: Path, printed) -> None:
    streamed = printed("generate", checkpoint, "Speak", *SHORT)
    record = json.loads(printed("generate", checkpoint, "Speak", *SHORT, "--json"))
    assert streamed.rstrip("\n") == ("Speak" + record["text"]).rstrip("\n")
    assert record.keys() == {"prompt", "text", "tokens", "seconds", "seed"}
    assert (record["prompt"], record["seed"]) == ("Speak", 0)
    assert 1 <= record["tokens"] <= 12


def test_seeds_decide_what_is_drawn(checkpoint: Path, printed) -> None:
    def written(*arguments: str) -> str:
        return json.loads(printed("generate", checkpoint, "Speak", *SHORT, "--json", *arguments))["text"]

    assert written("--seed", "1") == written("--seed", "1") != written("--seed", "2")
    assert written("--greedy", "--seed", "1") == written("--greedy", "--seed", "2")
    assert written("--top-k", "1") == written("--greedy")
    assert written("--top-p", "1e-6") == written("--greedy")
    assert written("--temperature", "1e-6") == written("--greedy")


def test_greedy_takes_the_likeliest(checkpoint: Path, printed) -> None:
    from sheafstate.evaluation import load_checkpoint

    model, tokenizer = load_checkpoint(checkpoint)
    ids = list(b"Speak")
    for _ in range(12):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    expected = tokenizer.decode(ids[5:], skip_special_tokens=True)
    assert json.loads(printed("generate", checkpoint, "Speak", *SHORT, "--greedy", "--json"))["text"] == expected


def test_it_stops_after_a_text(checkpoint: Path, printed) -> None:
    whole = json.loads(printed("generate", checkpoint, "Speak", *SHORT, "--greedy", "--json"))["text"]
    stop = next(mark for mark in whole if mark.isascii() and mark.isprintable())
    cut = json.loads(printed("generate", checkpoint, "Speak", *SHORT, "--greedy", "--stop", stop, "--json"))["text"]
    assert cut == whole[: whole.index(stop) + 1]
    assert len(cut) < len(whole)


def test_without_a_prompt_a_text_is_begun(checkpoint: Path, printed) -> None:
    record = json.loads(printed("generate", checkpoint, *SHORT, "--json"))
    assert record["prompt"] == ""
    assert record["tokens"] >= 1


def test_ids_that_no_token_has_are_never_drawn(tmp_path: Path) -> None:
    """A vocabulary padded to 320, whose padding the model likes best."""
    from sheafstate.evaluation import load_checkpoint

    tokenizer, ids = load_tokenizer("byte"), torch.tensor([list(b"Speak")])
    model = make_model("mixture", torch.float32, vocab_size=320)
    with torch.no_grad():
        favour = model.model(input_ids=ids).last_hidden_state[0, -1]
        model.lm_head.weight[257:] = 10 * favour / favour.norm()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, _ = load_checkpoint(tmp_path)
    how = {"seed": 0, "stream": False, "stop": [], "max_new_tokens": 12, "do_sample": True}
    assert int(model(input_ids=ids).logits[0, -1].argmax()) >= len(tokenizer)
    assert all(token < len(tokenizer) for token in _write(model, tokenizer, ids, **how))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--temperature", "0"], "temperature must be above 0, not 0.0 (--greedy draws nothing)"),
        (["--temperature", "nan"], "temperature must be above 0"),
        (["--top-p", "0"], "top-p must be above 0 and at most 1"),
        (["--top-p", "1.1"], "top-p must be above 0 and at most 1"),
        (["--max-new-tokens", "0"], "max-new-tokens"),
        (["--top-k", "-1"], "top-k"),
    ],
)
def test_bad_options_are_one_sentence(arguments: list[str], reason: str, checkpoint: Path, refused) -> None:
    assert reason in refused("generate", checkpoint, "Speak", *arguments)


def test_bad_checkpoints_are_one_sentence(checkpoint: Path, tmp_path: Path, refused) -> None:
    assert "nowhere does not exist" in refused("generate", tmp_path / "nowhere", "Speak")
    assert "config.json is missing" in refused("generate", tmp_path, "Speak")
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    (broken / "model.safetensors").write_bytes(b"\x08")
    assert "cannot be loaded" in refused("generate", broken, "Speak")
    unfit = tmp_path / "unfit"
    shutil.copytree(checkpoint, unfit)
    other = load_tokenizer("bpe:300", ["abab" * 99])
    other.save_pretrained(unfit)
    assert f"it has {len(other)} tokens, the model 257" in refused("generate", unfit, "Speak")
