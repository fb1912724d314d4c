"""Sites that were learned and sites that were not, held against graphs that are known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.edges import EdgeList, coverage, degrees, waste
from sheafstate.errors import InputError
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
from tests.variants import examples


def edges(pairs: list[tuple[int, int, float]], length: int, kinds: list[int] | None = None) -> EdgeList:
    later, earlier, weights = (np.array(column) for column in zip(*pairs, strict=True))
    codes = np.array(kinds or [0] * len(pairs), np.int8)
    return EdgeList(later, earlier, codes, ("a", "b"), length, None, weights.astype(np.float32))


def pairs_of(site: EdgeList) -> set[tuple[int, int]]:
    return set(zip(site.later.tolist(), site.earlier.tolist(), strict=True))


@pytest.mark.parametrize("by_share", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_what_a_model_read_is_there_once_with_its_largest_weight_or_the_sum(total: bool, by_share: bool) -> None:
    torch.manual_seed(0)
    config = SheafStateConfig(
        vocab_size=20, d_model=16, num_layers=2, heads={"local": 2, "retrieval": 1}, d_head=8, window=4, d_ff=8
    )
    model, ids = SheafStateForCausalLM(config).train(), torch.randint(20, (2, 30))
    found = used_edges(model, ids, total, by_share)
    assert model.training
    layers = model.eval().model(ids, output_site=True, use_cache=False).site
    for row, site in enumerate(found):
        wanted: dict[tuple[int, int], float] = {}
        for layer in layers:
            every = layer.edges[row]
            heads = {"local": 0, "retrieval": 2}  # where those of a type begin
            columns = zip(every.later, every.earlier, every.types, every.heads, every.weights, strict=True)
            for later, earlier, kind, head, weight in columns:
                key = (int(later), int(earlier))
                if by_share:
                    weight = weight * layer.shares[row, heads[every.names[kind]] + head, later]
                before = wanted.get(key, 0.0)
                wanted[key] = before + float(weight) if total else max(before, float(weight))
        listed = dict(zip(zip(site.later.tolist(), site.earlier.tolist()), site.weights.tolist()))  # noqa: B905
        assert listed == pytest.approx(wanted, abs=1e-6)


def test_a_head_that_adds_nothing_used_nothing() -> None:
    torch.manual_seed(0)
    config = SheafStateConfig(vocab_size=20, d_model=16, num_layers=1, heads={"local": 2}, d_head=8, window=4, d_ff=8)
    model, ids = SheafStateForCausalLM(config), torch.randint(20, (1, 30))
    with torch.no_grad():
        model.model.layers[0].gluing.out_proj.weight[:, :8] = 0.0
    layer = model.eval().model(ids, output_site=True, use_cache=False).site[0]
    torch.testing.assert_close(layer.shares, torch.tensor([0.0, 1.0])[None, :, None].expand(1, 2, 30))
    first = layer.edges[0].heads == 0
    whole = used_edges(model, ids, total=True)[0].weights.sum()
    rest = used_edges(model, ids, total=True, by_share=True)[0].weights.sum()
    assert whole - rest == pytest.approx(layer.edges[0].weights[first].sum(), rel=1e-5)


def test_tokens_are_joined_to_their_units() -> None:
    site = edges([(5, 0, 0.5), (4, 1, 0.7), (5, 4, 0.9), (3, 2, 0.1)], 6)
    joined = regroup(site, np.array([0, 0, 1, 2, 3, 3]), 4)
    assert pairs_of(joined) == {(3, 0), (2, 1)}
    assert joined.weights.tolist() == pytest.approx([0.1, 0.7])
    assert pairs_of(regroup(site, np.array([0, 0, -1, 2, 3, 3]), 4)) == {(3, 0)}
    assert regroup(site, np.array([0, 0, 1, 2, 3, 3]), 4, total=True).weights.tolist() == pytest.approx([0.1, 1.2])
    assert len(regroup(site.select(slice(0)), np.zeros(6, int), 1, total=True)) == 0


def test_the_strongest_and_the_strong_enough_are_chosen() -> None:
    site = edges([(4, 0, 0.5), (4, 1, 0.2), (4, 2, 0.5), (3, 0, 0.1)], 5)
    assert pairs_of(at_least(site, 0.2)) == {(4, 0), (4, 1), (4, 2)}
    assert pairs_of(strongest(site, 1)) == {(4, 2), (3, 0)}
    assert pairs_of(strongest(site, 2)) == {(4, 2), (4, 0), (3, 0)}
    with pytest.raises(InputError, match="how strong"):
        strongest(EdgeList(site.later, site.earlier, site.types, site.names, 5), 1)


@examples(25)
@given(seed=st.integers(0, 10_000), length=st.integers(1, 40), beyond=st.integers(0, 6))
def test_sites_nobody_learned_have_the_degrees_they_are_given(seed: int, length: int, beyond: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.integers(0, 5, length), np.arange(length))
    room = np.maximum(0, np.arange(length) - beyond)
    for site in (nearest_site(counts, beyond), random_site(counts, rng, beyond)):
        assert np.array_equal(degrees(site), np.minimum(counts, room))
        assert (site.later - site.earlier > beyond).all()
    true = random_site(np.minimum(2, np.arange(length)), rng)
    oracle = oracle_site(counts, true)
    assert np.array_equal(degrees(oracle), counts)
    for site in (nearest_site(counts), random_site(counts, rng)):
        if len(site):
            assert coverage(oracle, true) >= coverage(site, true)


def test_the_same_name_is_followed_back() -> None:
    names = ["a", "b", "a", "c", "a", "b", "a"]
    assert pairs_of(same_name_site(names, 2)) == {(2, 0), (4, 0), (4, 2), (5, 1), (6, 2), (6, 4)}
    assert pairs_of(same_name_site(names, 1, beyond=2)) == {(4, 0), (5, 1), (6, 2)}


def test_counts_are_added_up_over_rows() -> None:
    first = edges([(2, 0, 1.0), (2, 1, 1.0)], 3), edges([(2, 0, 1.0)], 3, [1])
    second = edges([(1, 0, 1.0)], 2), edges([(1, 0, 1.0)], 2, [0])
    figures = held([first[0], second[0]], [first[1], second[1]])
    assert figures["coverage"] == 1.0
    assert figures["coverage_a"] == figures["coverage_b"] == 1.0
    assert figures["waste"] == pytest.approx(1 / 3)
    assert figures["edges"] == pytest.approx(3 / 5)
    alone = held([first[0]], [first[1]])
    assert (alone["coverage"], alone["waste"]) == (coverage(*first), waste(*first))
    assert "coverage_a" not in alone
