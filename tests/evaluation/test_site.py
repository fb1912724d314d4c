"""The site of a passage as values is the site that the model returned, in the form that the report reads."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sheafstate.data import load_tokenizer
from sheafstate.errors import InputError
from sheafstate.evaluation.site import last_token_of, passage_site
from sheafstate.report.schema import read_passage
from tests.variants import VARIANTS, make_model

TEXT = "To be, or not to be: naïve — 中 [red]\n\tthe question"
BYTES = load_tokenizer("byte")

names = pytest.mark.parametrize("name", VARIANTS)


def model_of(name: str, **overrides: object):
    return make_model(name, torch.float32, vocab_size=len(BYTES), **overrides)


@names
def test_the_record_is_the_model_s_site(name: str) -> None:
    model, focus = model_of(name), 30
    record = passage_site(model, BYTES, TEXT, focus)
    with torch.no_grad():
        layers = model(torch.tensor([list(TEXT.encode())]), output_site=True, use_cache=False).site
    assert (record["length"], record["focus"]) == (len(TEXT.encode()), focus)
    for found, site in zip(record["layers"], layers, strict=True):
        edges = site.edges[0]
        mine = edges.select(edges.later == focus)
        expected = {
            (int(p), mine.names[t], int(h)): float(w)
            for p, t, h, w in zip(mine.earlier, mine.types, mine.heads, mine.weights, strict=True)
        }
        listed = {(e["earlier"], e["type"], e["head"]): e["weight"] for e in found["edges"]}
        assert listed.keys() == expected.keys()
        assert all(abs(weight - expected[key]) < 1e-5 for key, weight in listed.items())
        assert len(found["edges"]) == len(expected)
        assert sum(found["edge_counts"].values()) == len(edges)
        assert found["addresses"] == site.addresses[0].tolist()
        heads = [head for kind in found["compatibility"].values() for head in kind]
        for ours, theirs in ((heads, site.compatibility[0]), (list(found["boundaries"].values()), site.boundaries[0])):
            assert np.allclose(np.array(ours).reshape(theirs.shape), theirs, atol=1e-5)
        assert (found["residual"] is None) == (model.config.gluing != "sheaf")
        if site.residual is not None:
            assert np.allclose(found["residual"], site.residual[0], atol=1e-4)


@names
def test_the_report_reads_it(name: str, tmp_path: Path) -> None:
    record = passage_site(model_of(name), BYTES, TEXT)
    (tmp_path / "site.json").write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
    passage = read_passage(tmp_path / "site.json")
    assert list(passage.tokens) == record["tokens"]
    assert passage.focus == len(TEXT.encode()) - 1
    assert [len(layer.edges) for layer in passage.layers] == [len(layer["edges"]) for layer in record["layers"]]


def test_relations_come_by_head_and_the_strongest_first() -> None:
    for layer in passage_site(model_of("mixture"), BYTES, TEXT)["layers"]:
        order = [(list(layer["compatibility"]).index(e["type"]), e["head"], -e["weight"]) for e in layer["edges"]]
        assert order == sorted(order)
        assert len({place[:2] for place in order}) > 3


def test_the_mode_of_the_model_stays() -> None:
    model = model_of("local").train()
    passage_site(model, BYTES, TEXT)
    assert model.training


def test_the_focus_counts_from_the_end_too() -> None:
    model = model_of("local")
    assert passage_site(model, BYTES, "abc", -3)["focus"] == 0
    for focus in (3, -4):
        with pytest.raises(InputError, match="tokens 0 to 2"):
            passage_site(model, BYTES, "abc", focus)


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="empty"):
        passage_site(model_of("local"), BYTES, "")
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=257, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    with pytest.raises(InputError, match="LlamaForCausalLM has no site"):
        passage_site(llama, BYTES, "abc")


@pytest.mark.parametrize("spec", ["byte", "char", "bpe:270"])
@pytest.mark.parametrize("word", ["To", "be", "naïve", "中", "question", "t", " "])
def test_a_word_is_found_where_it_ends_last(spec: str, word: str) -> None:
    tokenizer = load_tokenizer(spec, [TEXT])
    position = last_token_of(tokenizer, TEXT, word)
    ids = tokenizer(TEXT).input_ids
    end = TEXT.rindex(word) + len(word)
    assert len(tokenizer.decode(ids[: position + 1])) >= end > len(tokenizer.decode(ids[:position]).rstrip("\ufffd"))


@pytest.mark.parametrize("word", ["", "slings"])
def test_a_word_that_is_not_there(word: str) -> None:
    with pytest.raises(InputError, match="does not occur"):
        last_token_of(BYTES, TEXT, word)
