"""Relations as figures of a run: a model that reads everything holds everything, and tables say so."""

import json
import re
from pathlib import Path

import pytest
import torch

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.benchmarks.experiments.execute import execute
from sheafstate.benchmarks.experiments.relations import (
    attended_edges,
    graph_relations,
    language_relations,
    relation_table,
)
from sheafstate.benchmarks.peers import Shape, make_peer
from sheafstate.data import load_tokenizer
from sheafstate.data.synthetic import DENSE_RATES, DependencyLanguage

from .test_run import DEPENDENCIES, run_of, text_spec

WORDS = "far " * 50


def model_of(**fields: object) -> SheafStateForCausalLM:
    torch.manual_seed(0)
    shape = {"d_model": 16, "num_layers": 1, "d_head": 8, "d_ff": 8}
    return SheafStateForCausalLM(SheafStateConfig(**(shape | fields)))


def test_the_complete_site_holds_a_language_whole_and_mostly_in_vain() -> None:
    language = DependencyLanguage(rates=DENSE_RATES)
    model = model_of(vocab_size=language.vocab_size, heads={"local": 1}, site="complete")
    figures = language_relations(language, 2, 64, 5, model)
    assert figures["site|licensed|coverage"] == 1.0
    assert 0.8 < figures["site|licensed|waste"] < 1
    assert figures["site|licensed|edges"] == pytest.approx(31 / 2)
    assert figures["site|0.08 of the layer|edges"] == pytest.approx(figures["site|random|edges"])
    # the one layer's only head adds all of what it adds
    assert figures["site|0.04 of the layer|edges"] >= figures["site|0.05|edges"]
    assert figures["site|0.02 of the layer|coverage"] == figures["site|0.02|coverage"]
    assert figures["site|oracle|coverage"] >= max(figures[f"site|{name}|coverage"] for name in ("nearest", "random"))
    with torch.device("meta"):
        peer = make_peer("llama", Shape(64, 16, 1, 8, 10_000))
    assert language_relations(language, 2, 64, 5, peer) == {}


def graphs(folder: Path) -> Path:
    """Two names, said again 50 words later."""
    text = f"Ann met Bo. {WORDS}Then Ann left Bo."
    offsets = [at for word in re.finditer(r"\S+", text) for at in word.span()]
    words = text.split()
    coref = [[words.index("Ann", 5), 0, "coref"], [len(words) - 1, 2, "coref"], [1, 0, "near"]]
    path = folder / "graphs.jsonl"
    path.write_text(json.dumps({"text": text, "off": offsets, "coref": coref}) + "\n", encoding="utf-8")
    return path


def test_far_links_of_texts_are_held_by_the_same_word_and_learned_ones_are_told(tmp_path: Path) -> None:
    tokenizer, path = load_tokenizer("byte", [""]), str(graphs(tmp_path))
    model = model_of(vocab_size=len(tokenizer), heads={"local": 1, "retrieval": 1})
    figures = graph_relations(tokenizer, path, 1, 400, model)
    assert figures["site|same word|coverage"] == 1.0
    assert figures["site|nearest beyond|coverage"] == 0.0
    assert {
        f"site|{name}|coverage_coreference" for name in ("learned", "learned, total", "same word")
    } <= figures.keys()
    assert figures["site|learned|edges"] <= 4
    llama = make_peer("llama", Shape(len(tokenizer), 16, 1, 8, 10_000))
    of_ours = {key for key in figures if key.startswith("site|learned, by share|")}
    assert of_ours
    assert graph_relations(tokenizer, path, 1, 400, llama).keys() == figures.keys() - of_ours
    mamba = make_peer("mamba2", Shape(len(tokenizer), 64, 1, 8, 50_000))
    assert graph_relations(tokenizer, path, 1, 400, mamba) == {}
    complete = model_of(vocab_size=len(tokenizer), heads={"local": 1}, site="complete")
    assert graph_relations(tokenizer, path, 1, 400, complete) == {}


def test_attention_is_the_most_of_any_head_and_the_model_stays_as_it_was() -> None:
    torch.manual_seed(0)
    model, ids = make_peer("llama", Shape(32, 16, 2, 8, 10_000)).eval(), torch.randint(32, (1, 9))
    before = model(ids).logits
    edges = attended_edges(model, ids)
    assert len(edges) == 9 * 8 // 2
    assert 0 < edges.weights.min() <= edges.weights.max() <= 1
    every = attended_edges(model, ids, total=True).weights
    assert (every >= edges.weights).all()
    assert 2 * 2 * 8 > every.sum() > edges.weights.sum()  # two layers of two heads, eight positions that look back
    assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(model(ids).logits, before)


def test_runs_keep_relations_and_tables_show_them(tmp_path: Path) -> None:
    record = execute(run_of(DEPENDENCIES | {"relation_rows": 2}), "full", tmp_path)
    assert "site|licensed|coverage_local" in record["figures"]
    spec = text_spec(tmp_path) | {"graphs": {"mine": str(graphs(tmp_path))}, "graph_documents": 1}
    spec |= {"context": 300, "measured_contexts": [300]}  # of a text as much is read as of a row
    text = execute(run_of(spec), "full", tmp_path)
    assert text["figures"]["site|mine: same word|coverage"] == 1.0
    table = relation_table({"base": record["figures"], "other": {"loss": 1.0}}).splitlines()
    assert table[0].startswith("| side | site | edges a position | waste, % | coverage, % | local, %")
    assert table[2].startswith("| base | licensed | ")
    assert relation_table({"base": {"loss": 1.0}}) == ""
