"""The relations of a trained model's site beside the true ones, as figures of a run and as a table.

A figure is named ``site|SITE|QUANTITY``. Of the learned site there are several, by how strong a relation must be:
``licensed`` is all that the site let through, ``0.05`` what had a twentieth of a head's weight or more, ``0.05 of the
layer`` where that weight counts by the head's share in what its layer adds. Beside a language, sites that nobody
learned have the degrees of the one at :data:`DEGREES_OF`; beside annotated texts the nearest and random ones have those
of the learned site.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.benchmarks.pages import markdown_table
from sheafstate.data.graphs import read_graphs
from sheafstate.data.synthetic import DependencyLanguage
from sheafstate.edges import EdgeList, degrees
from sheafstate.evaluation.relations import (
    at_least,
    held,
    nearest_site,
    oracle_site,
    random_site,
    regroup,
    same_name_site,
    strongest,
    used_edges,
)
from sheafstate.modeling import SheafStateForCausalLM

__all__ = ["PREFIX", "attended_edges", "graph_relations", "language_relations", "relation_table"]

PREFIX = "site|"
CUTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
SHARE_CUTS = (0.01, 0.02, 0.04, 0.08, 0.16)
DEGREES_OF = 0.08
"""Weight, of the layer, of the learned site whose degrees the others get."""
WINDOW = 32
"""Words that a window would hold: only what lies further back is asked for in annotated texts."""
DEGREE = 4
"""Far relations that a word has at the most: four earlier neighbours hold every link of 97 words in 100."""


def language_relations(
    language: DependencyLanguage, rows: int, length: int, seed: int, model: PreTrainedModel
) -> dict[str, float]:
    """What the site of a model of ours holds of the graphs behind fresh texts; nothing for another model.

    A pair of the graph's positions is held if the cue at which the later is predicted reads a token of the earlier.
    """
    if not isinstance(model, SheafStateForCausalLM):
        return {}
    ids = torch.from_numpy(language.draw(rows, length, seed).input_ids)
    unit, positions = np.arange(length) // 2, length // 2
    sites: dict[bool, list[EdgeList]] = {False: [], True: []}
    truths = []
    for row in range(rows):
        for by_share, made in sites.items():
            (edges,) = used_edges(model, ids[row : row + 1], by_share=by_share)
            made.append(regroup(edges.select(edges.later % 2 == 0), unit, positions))
        true = language.truth(length, seed, row)
        truths.append(EdgeList(true.later // 2, true.earlier // 2, true.types, true.names, positions))
    figures: dict[str, float] = {}
    for cut in CUTS:
        figures |= _named("licensed" if cut == 0 else f"{cut:g}", [at_least(s, cut) for s in sites[False]], truths)
    for cut in SHARE_CUTS:
        figures |= _named(f"{cut:g} of the layer", [at_least(site, cut) for site in sites[True]], truths)
    counts = [degrees(at_least(site, DEGREES_OF)) for site in sites[True]]
    rng = np.random.default_rng(seed)
    figures |= _named("nearest", [nearest_site(n) for n in counts], truths)
    figures |= _named("random", [random_site(n, rng) for n in counts], truths)
    figures |= _named("oracle", [oracle_site(n, t) for n, t in zip(counts, truths, strict=True)], truths)
    return figures


def graph_relations(
    tokenizer: PreTrainedTokenizerBase, path: str, documents: int, tokens: int, model: PreTrainedModel
) -> dict[str, float]:
    """What a model's strongest far relations hold of the links between words of texts that were annotated.

    Only links over more than :data:`WINDOW` words count, and every word has at most :data:`DEGREE` relations that far:
    of ours those of most weight, of a Llama those of most attention, by what any layer and head gives them
    (``learned``), by what all of them give together (``learned, total``), and of ours also by what any gives them times
    its share in what its layer adds (``learned, by share``). The first word is left out, where models put attention
    that is not needed elsewhere. Nothing for other models, nor for ours over the complete site, whose
    relations are too many to list: a Llama stands for them.

    Args:
        tokenizer: of the model.
        path: file of texts; see :func:`~sheafstate.data.graphs.read_graphs`.
        documents: how many of them, evenly spread over the file.
        tokens: of each document, from its beginning.
        model: the model.
    """
    if not isinstance(model, (SheafStateForCausalLM, LlamaForCausalLM)) or _reads_everything(model):
        return {}
    named: dict[str, list[EdgeList]] = {}
    truths, rng = [], np.random.default_rng(0)
    every = list(read_graphs(path))
    for graph in every[:: max(1, len(every) // documents)][:documents]:
        encoded = tokenizer(graph.text, return_offsets_mapping=True, add_special_tokens=False)
        ends = np.array([end for _, end in encoded.offset_mapping[:tokens]], np.int64)
        unit = graph.word_of(np.maximum(ends - 1, 0))
        length = int(unit.max()) + 1
        ids = torch.tensor([encoded.input_ids[:tokens]])
        learned, total = (_strongest_far(_used(model, ids, whole), unit, length, whole) for whole in (False, True))
        counts = degrees(learned)
        sites = {
            "learned": learned,
            "learned, total": total,
            "same word": same_name_site([word.lower() for word in graph.words[:length]], DEGREE, WINDOW),
            "nearest beyond": nearest_site(counts, WINDOW),
            "random": random_site(counts, rng, WINDOW),
        }
        if isinstance(model, SheafStateForCausalLM):
            by_share = used_edges(model, ids, by_share=True)[0]
            sites["learned, by share"] = _strongest_far(by_share, unit, length, False)
        for name, site in sites.items():
            named.setdefault(name, []).append(site)
        links = graph.links.select(graph.links.later < length).beyond(WINDOW)
        truths.append(EdgeList(links.later, links.earlier, links.types, links.names, length))
    figures: dict[str, float] = {}
    for name, made in named.items():
        figures |= _named(name, made, truths)
    return figures


def _used(model: SheafStateForCausalLM | LlamaForCausalLM, ids: torch.Tensor, total: bool) -> EdgeList:
    return (
        attended_edges(model, ids, total) if isinstance(model, LlamaForCausalLM) else used_edges(model, ids, total)[0]
    )


def _strongest_far(used: EdgeList, unit: NDArray[np.int64], length: int, total: bool) -> EdgeList:
    far = regroup(used, unit, length, total).beyond(WINDOW)
    return strongest(far.select(far.earlier > 0), DEGREE)


def _reads_everything(model: PreTrainedModel) -> bool:
    return isinstance(model, SheafStateForCausalLM) and model.config.site == "complete"


@torch.no_grad()
def attended_edges(model: LlamaForCausalLM, ids: torch.Tensor, total: bool = False) -> EdgeList:
    """Every pair of a text's tokens with the most that any head of a Llama attends to it, or with what all attend."""
    given = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        attentions = model.model(ids.to(model.device), use_cache=False, output_attentions=True).attentions
    finally:
        model.set_attn_implementation(given)
    every = torch.cat([layer[0] for layer in attentions]).float()  # (heads of all layers, T, T)
    weights = (every.sum(0) if total else every.amax(0)).cpu().numpy()
    later, earlier = np.tril_indices(len(weights), -1)
    kinds = np.zeros(len(later), np.int8)
    return EdgeList(later, earlier, kinds, ("attention",), len(weights), None, weights[later, earlier])


def _named(site: str, sites: list[EdgeList], truths: list[EdgeList]) -> dict[str, float]:
    return {f"{PREFIX}{site}|{name}": value for name, value in held(sites, truths).items()}


def relation_table(sides: Mapping[str, Mapping[str, float]]) -> str:
    """A row for each site of each side, from the means of their figures; empty where nobody has any.

    Args:
        sides: side → name of a figure → its mean.
    """
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for side, figures in sides.items():
        for name, value in figures.items():
            if name.startswith(PREFIX):
                _, site, quantity = name.split("|")
                cells.setdefault((side, site), {})[quantity] = value
    if not cells:
        return ""
    kinds = dict.fromkeys(q.removeprefix("coverage_") for found in cells.values() for q in found if "coverage_" in q)
    head = ["side", "site", "edges a position", "waste, %", "coverage, %", *(f"{kind}, %" for kind in kinds)]
    rows = [[*place, *_cells(found, list(kinds))] for place, found in cells.items()]
    return markdown_table(head, rows)


def _cells(found: Mapping[str, Any], kinds: list[str]) -> list[str]:
    shares = ["waste", "coverage", *(f"coverage_{kind}" for kind in kinds)]
    return [f"{found['edges']:.2f}", *(f"{100 * found[name]:.1f}" if name in found else "" for name in shares)]
