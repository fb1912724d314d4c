"""Generation with the state as cache: greedy, sampling, beams, batches; snapshots and reordering."""

import pytest
import torch
from transformers import GenerationConfig

from sheafstate.data.tokenizers import byte_tokenizer
from tests.variants import VARIANTS, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)


def generate(
    model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor | None = None, **options: object
) -> torch.Tensor:
    mask = torch.ones_like(ids) if mask is None else mask
    settings = GenerationConfig(max_new_tokens=15, pad_token_id=0, **options)
    return model.generate(ids, attention_mask=mask, generation_config=settings)


@names
def test_greedy_with_and_without_state_writes_the_same(name) -> None:
    model, ids = make_model(name), tokens(3, 11)
    cached, plain = generate(model, ids), generate(model, ids, use_cache=False)
    assert torch.equal(cached, plain)
    by_hand = ids
    with torch.no_grad():
        for _ in range(15):
            by_hand = torch.cat([by_hand, model(by_hand).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(cached, by_hand)


@names
def test_sampling_with_and_without_state_draws_the_same(name) -> None:
    model, ids = make_model(name), tokens(2, 7)
    results = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        results.append(generate(model, ids, do_sample=True, use_cache=use_cache))
    assert torch.equal(*results)


@names
def test_left_padded_batches_write_what_solo_rows_write(name) -> None:
    model, lengths = make_model(name), [4, 9, 13]
    rows = [tokens(1, n, n)[0] for n in lengths]
    ids = torch.stack([torch.nn.functional.pad(row, (13 - len(row), 0)) for row in rows])
    mask = torch.stack([torch.arange(13) >= 13 - n for n in lengths]).long()
    batch = generate(model, ids, mask)[:, 13:]
    for row, written in zip(rows, batch, strict=True):
        assert torch.equal(generate(model, row[None])[0, len(row) :], written)


@names
@pytest.mark.parametrize("beams", [2, 4])
def test_a_beam_scores_its_log_probability(name, beams) -> None:
    model, ids = make_model(name), tokens(2, 6)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=8,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=0.0,
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=0,
    )
    with torch.no_grad():
        logp = model(out.sequences).logits.log_softmax(-1)
    picked = logp[:, :-1].gather(-1, out.sequences[:, 1:, None])[..., 0][:, 5:].sum(-1)
    torch.testing.assert_close(out.sequences_scores.double(), picked, rtol=0, atol=1e-5)


@names
def test_a_snapshot_branches_and_is_not_touched(name) -> None:
    model, ids = make_model(name), tokens(2, 30)
    with torch.no_grad():
        cache = model(ids[:, :17], use_cache=True).cache
        kept = cache.snapshot()
        before = [tensor.clone() for tensor in kept.tensors()]
        first = model(ids[:, 17:], cache=cache).logits
        again = model(ids[:, 17:], cache=kept.snapshot()).logits
        other = model(ids[:, :13], cache=kept.snapshot()).logits
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        for a, b in zip(kept.tensors(), before, strict=True):
            assert torch.equal(a, b)


@names
def test_rows_of_a_cache_can_be_chosen_repeated_and_reordered(name) -> None:
    model, ids = make_model(name), tokens(3, 20)
    with torch.no_grad():
        base = model(ids[:, :12], use_cache=True).cache
        rest = model(ids[:, 12:], cache=base.snapshot()).logits
        order = torch.tensor([2, 0, 1])
        turned, chosen, twice = base.snapshot(), base.snapshot(), base.snapshot()
        turned.reorder_cache(order)
        chosen.batch_select_indices(torch.tensor([1]))
        twice.batch_repeat_interleave(2)
        torch.testing.assert_close(model(ids[order, 12:], cache=turned).logits, rest[order], rtol=0, atol=1e-9)
        torch.testing.assert_close(model(ids[1:2, 12:], cache=chosen).logits, rest[1:2], rtol=0, atol=1e-9)
        repeated = ids.repeat_interleave(2, 0)[:, 12:]
        expected = rest.repeat_interleave(2, 0)
        torch.testing.assert_close(model(repeated, cache=twice).logits, expected, rtol=0, atol=1e-9)
        assert {layer.get_seq_length() for layer in base.layers} == {12}
    with pytest.raises(ValueError, match="snapshot"):
        base.crop(1)
    base.reset()
    assert base.get_seq_length() == 0
    with torch.no_grad():
        torch.testing.assert_close(model(ids, cache=base).logits, model(ids).logits, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [n for n in VARIANTS if n != "complete"])
def test_the_state_has_one_size_at_any_context(name) -> None:
    model, sizes = make_model(name, torch.float32), set()
    for length in (1, 40, 500):
        with torch.no_grad():
            sizes.add(model(tokens(1, length), use_cache=True).cache.num_bytes())
    assert len(sizes) == 1


def test_both_names_of_the_state_are_taken_and_given() -> None:
    model, ids = make_model("mixture"), tokens(1, 20)
    with torch.no_grad():
        out = model(ids[:, :10], use_cache=True)
        assert out.past_key_values is out.cache
        assert out["cache"] is out.cache
        old = model(ids[:, 10:], past_key_values=out.cache.snapshot()).logits
        new = model(ids[:, 10:], cache=out.cache.snapshot()).logits
    assert torch.equal(old, new)


def test_stop_strings_and_a_tokenizer_pass_through() -> None:
    """Generation hands its tokenizer on to every step."""
    tokenizer = byte_tokenizer()
    model = make_model("mixture", vocab_size=len(tokenizer))
    ids = tokenizer("Sheaf", return_tensors="pt").input_ids
    free = generate(model, ids)[0, ids.shape[1] :].tolist()
    stop = next(token for token in free if tokenizer.decode([token]).isascii())
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=15,
        pad_token_id=0,
        stop_strings=[tokenizer.decode([stop])],
        tokenizer=tokenizer,
    )
    assert out[0, ids.shape[1] :].tolist() == free[: free.index(stop) + 1]


@pytest.mark.parametrize("key", ["document_ids", "seq_idx"])
@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"prefill_chunk_size": 5}, {"num_beams": 2}])
def test_documents_in_the_prompt_go_on_with_the_last(key, options) -> None:
    model, ids = make_model("mixture"), tokens(2, 12)
    documents = torch.tensor([[0] * 7 + [1] * 5, [3] * 2 + [4] * 10])
    beams = {"num_beams": options.get("num_beams", 1)}
    written = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        generation_config=GenerationConfig(max_new_tokens=15, pad_token_id=0, **options),
        **{key: documents},
    )
    for row, begin in ((0, 7), (1, 2)):
        solo = generate(model, ids[row : row + 1, begin:], **beams)
        assert torch.equal(solo[0, 12 - begin :], written[row, 12:])


def test_generation_from_embeddings_equals_generation_from_ids() -> None:
    model, ids = make_model("mixture"), tokens(2, 9)
    embeds = model.get_input_embeddings()(ids).detach()
    settings = GenerationConfig(max_new_tokens=15, pad_token_id=0)
    written = model.generate(inputs_embeds=embeds, attention_mask=torch.ones_like(ids), generation_config=settings)
    assert torch.equal(written, generate(model, ids)[:, 9:])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("cut", range(1, 12))
def test_restarting_positions_start_documents_in_any_chunks(first, cut) -> None:
    model, ids = make_model("mixture"), tokens(1, 12)
    positions = torch.tensor([[*range(first, first + 5), *range(first, first + 4), *range(first + 2, first + 5)]])
    with torch.no_grad():
        whole = model(ids, position_ids=positions, use_cache=False).logits
        head = model(ids[:, :cut], position_ids=positions[:, :cut], use_cache=True)
        rest = model(ids[:, cut:], position_ids=positions[:, cut:], cache=head.cache).logits
        solo = torch.cat([model(part).logits for part in ids.split([5, 4, 3], 1)], 1)
    torch.testing.assert_close(torch.cat([head.logits, rest], 1), whole, rtol=0, atol=1e-9)
    torch.testing.assert_close(whole, solo, rtol=0, atol=1e-9)


def test_borders_alone_start_documents() -> None:
    model, ids = make_model("mixture"), tokens(1, 12)
    borders = torch.tensor([0, 5, 9, 12], dtype=torch.int32)
    with torch.no_grad():
        packed = model(ids, cu_seq_lens_q=borders, cu_seq_lens_k=borders, max_length_q=5, max_length_k=5).logits
        solo = torch.cat([model(part).logits for part in ids.split([5, 4, 3], 1)], 1)
    torch.testing.assert_close(packed, solo, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="cu_seq_lens_q"):
        model(ids, cu_seq_lens_q=borders[:-1])


def test_a_call_that_fails_leaves_the_cache_as_it_was(monkeypatch) -> None:
    model, ids = make_model("mixture"), tokens(1, 12)
    with torch.no_grad():
        cache = model(ids[:, :6], use_cache=True).cache
        expected = model(ids[:, 6:], cache=cache.snapshot()).logits
        monkeypatch.setattr(model.model.layers[1], "forward", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(ids[:, 6:], cache=cache)
        monkeypatch.undo()
        assert torch.equal(model(ids[:, 6:], cache=cache).logits, expected)


def test_what_cannot_be_is_refused_in_one_sentence() -> None:
    model, ids = make_model("mixture"), tokens(1, 5)
    from transformers import DynamicCache

    with pytest.raises(ValueError, match="DynamicCache"):
        model(ids, cache=DynamicCache())
    with pytest.raises(ValueError, match="exactly one"):
        model()
    with pytest.raises(ValueError, match="attention_mask"):
        model(ids, attention_mask=torch.ones(1, 7))
    with pytest.raises(ValueError, match="document_ids"):
        model(ids, document_ids=torch.ones(2, 5))
    with pytest.raises(ValueError, match="at least one position"):
        model(ids[:, :0])
    with pytest.raises(TypeError, match="atention_mask"):
        model(ids, atention_mask=torch.ones(1, 5))
    filled = model(ids, use_cache=True).cache
    with pytest.raises(ValueError, match="whole text"):
        model(ids, cache=filled, output_site=True)
    with pytest.raises(ValueError, match="holds 1 rows"):
        model(tokens(2, 5), cache=filled)
    with pytest.raises(ValueError, match="another configuration"):
        make_model("mixture", window=6)(ids, cache=filled)
    with pytest.raises(ValueError, match="another configuration"):
        make_model("mixture", num_layers=3)(ids, cache=filled)
    with pytest.raises(ValueError, match="labels must have shape"):
        model(ids, labels=tokens(1, 6))
    with pytest.raises(ValueError, match="logits_to_keep"):
        model(ids, logits_to_keep=-1)
    with pytest.raises(ValueError, match="inputs_embeds"):
        model(inputs_embeds=torch.zeros(1, 3, 15))
