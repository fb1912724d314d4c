"""Generation: documents, embeddings, positions; both names of the state; calls that fail."""

import pytest
import torch
from transformers import GenerationConfig

from tests.variants import VARIANTS, make_model, tokens

names = pytest.mark.parametrize("name", VARIANTS)


def generate(
    model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor | None = None, **options: object
) -> torch.Tensor:
    mask = torch.ones_like(ids) if mask is None else mask
    settings = GenerationConfig(max_new_tokens=15, pad_token_id=0, **options)
    return model.generate(ids, attention_mask=mask, generation_config=settings)


def test_both_names_of_the_state_are_taken_and_given() -> None:
    model, ids = make_model("mixture"), tokens(1, 20)
    with torch.no_grad():
        out = model(ids[:, :10], use_cache=True)
        assert out.past_key_values is out.cache
        assert out["cache"] is out.cache
        old = model(ids[:, 10:], past_key_values=out.cache.snapshot()).logits
        new = model(ids[:, 10:], cache=out.cache.snapshot()).logits
    assert torch.equal(old, new)


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
