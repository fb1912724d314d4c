"""The site of a passage as plain values: what ``site.json`` holds and ``sheafstate inspect`` shows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sheafstate.config import SheafStateConfig
from sheafstate.data.labels import token_labels
from sheafstate.edges import EdgeList
from sheafstate.errors import InputError
from sheafstate.modeling import SheafStateForCausalLM
from sheafstate.outputs import LayerSite

__all__ = ["last_token_of", "passage_site"]

_PLACES = 6


def last_token_of(tokenizer: PreTrainedTokenizerBase, text: str, word: str) -> int:
    """Position of the token in which the last occurrence of ``word`` in ``text`` ends.

    Raises:
        InputError: the word is empty or does not occur.
    """
    start = text.rfind(word)
    if not word or start < 0:
        raise InputError(f"{word!r} does not occur in the text")
    last = start + len(word) - 1
    spans = tokenizer(text, return_offsets_mapping=True).offset_mapping
    # special tokens that a tokenizer adds span nothing
    return max(position for position, (begin, end) in enumerate(spans) if begin <= last and begin < end)


def passage_site(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, focus: int | None = None
) -> dict[str, Any]:
    """The site that a model lays over a text, every layer of it.

    Args:
        model: a Sheaf-State model; its mode is left as it was.
        tokenizer: the tokenizer that fits it.
        text: the passage; it is read from its first token on, without a mark before it.
        focus: the position whose relations are listed; the last one by default, and from the end if it is negative.

    Returns:
        ``{"tokens", "length", "focus", "layers"}``, a layer being ``{"boundaries", "addresses", "compatibility",
        "residual", "experts", "edges", "edge_counts"}``; see ``docs/files.md``. Plain lists and numbers.

    Raises:
        InputError: the model has no site, the text no token, or the focus does not exist.
    """
    if not isinstance(model, SheafStateForCausalLM):
        raise InputError(f"a {type(model).__name__} has no site: inspect a Sheaf-State model")
    ids = tokenizer(text, return_tensors="pt").input_ids.long()
    length = ids.shape[1]
    if not length:
        raise InputError("the text is empty: there is no site to show")
    position = length - 1 if focus is None else focus
    if not -length <= position < length:
        raise InputError(f"the text has tokens 0 to {length - 1}, not {position}")
    position %= length
    was_training = model.training
    model.eval()
    with torch.no_grad():
        output = model.model(ids.to(model.device), output_site=True, use_cache=False)
    model.train(was_training)
    if not output.last_hidden_state.isfinite().all():
        raise InputError("the model's outputs are not finite numbers: its weights are damaged or the text is too much")
    return {
        "tokens": token_labels(tokenizer, ids[0].tolist()),
        "length": length,
        "focus": position,
        "layers": [_layer(model.config, site, position) for site in output.site],
    }


def _layer(config: SheafStateConfig, site: LayerSite, focus: int) -> dict[str, Any]:
    """One layer's site of the first row."""
    names = [kind.value for kind in config.interval_types]
    kinds = [kind.value for kind in config.covers]
    per_type = site.compatibility[0].split(list(config.covers.values()))
    edges = site.edges[0]
    return {
        "boundaries": dict(zip(names, _rounded(site.boundaries[0]), strict=True)),
        "addresses": site.addresses[0].tolist(),
        "compatibility": {kind: _rounded(heads) for kind, heads in zip(kinds, per_type, strict=True)},
        "residual": None if site.residual is None else _rounded(site.residual[0]),
        "experts": None if site.experts is None else site.experts[0].tolist(),
        "edges": _edges_of(edges, focus, kinds),
        "edge_counts": {kind: len(edges.of_type(kind)) for kind in kinds},
    }


def _edges_of(edges: EdgeList, focus: int, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Relations of one position: by type and head, the strongest first."""
    mine = edges.select(edges.later == focus)
    assert mine.heads is not None  # the model always says which head
    assert mine.weights is not None
    rank = np.array([kinds.index(name) if name in kinds else -1 for name in mine.names])[mine.types]
    order = np.lexsort((-mine.earlier, -mine.weights, mine.heads, rank))
    return [
        {
            "later": focus,
            "earlier": int(mine.earlier[i]),
            "type": mine.names[mine.types[i]],
            "head": int(mine.heads[i]),
            "weight": round(float(mine.weights[i]), _PLACES),
        }
        for i in order
    ]


def _rounded(values: torch.Tensor) -> Any:
    """Nested lists of six places: what a figure can show, without the digits of a float32."""
    return np.round(values.double().cpu().numpy(), _PLACES).tolist()
