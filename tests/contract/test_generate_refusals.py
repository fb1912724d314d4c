"""Promise 4: what generation cannot do with a state is refused in a sentence, and the state stays as it was."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from tests.variants import tokens

from .promises import Mutation, contract
from .readings import model_of, per_case

STATELESS = Mutation(
    "modeling.py", "_is_stateful = True", "_is_stateful = False", "the model claims that its state can be cut back"
)
ANY_CACHE = Mutation(
    "modeling.py",
    "if not isinstance(cache, SheafStateCache):",
    "if not hasattr(cache, 'layers'):",
    "any kind of cache is taken",
)
UNCHECKED = Mutation(
    "state.py",
    "if 0 < read >= columns:",
    "if 0 < read > columns + 1:",
    "a prompt that a state has read already is read again",
)
ANY_BATCH = Mutation(
    "state.py",
    "if self.rows is not None and self.batch_size != batch:",
    "if self.rows is not None and batch % self.batch_size:",
    "a state of few rows is taken for many",
)

MODEL = model_of("mixture")
IDS = tokens(2, 9)
ONES = torch.ones_like(IDS)
GREEDY = {"max_new_tokens": 3, "pad_token_id": 0, "do_sample": False}

IMPOSSIBLE: dict[str, tuple[str, Callable[[], object]]] = {
    "an assistant": (
        "assisted generation is not supported with stateful models",
        lambda: MODEL.generate(IDS[:1], assistant_model=MODEL, **GREEDY),
    ),
    "look-up in the prompt": (
        "assisted generation is not supported with stateful models",
        lambda: MODEL.generate(IDS[:1], prompt_lookup_num_tokens=2, **GREEDY),
    ),
    "contrastive search": (
        "Contrastive Search requires `trust_remote_code=True`",
        lambda: MODEL.generate(IDS[:1], penalty_alpha=0.6, top_k=4, max_new_tokens=3, pad_token_id=0),
    ),
    "groups of beams": (
        "Group Beam Search requires `trust_remote_code=True`",
        lambda: MODEL.generate(IDS[:1], num_beams=4, num_beam_groups=2, diversity_penalty=0.1, **GREEDY),
    ),
    "continuous batching": (
        "continuous batching pages keys and values",
        lambda: MODEL.generate_batch([[1, 2, 3]]),
    ),
    "another kind of cache": (
        "not a DynamicCache",
        lambda: MODEL.generate(IDS, attention_mask=ONES, cache=DynamicCache(), **GREEDY),
    ),
    "a streamer with beams": (
        "`streamer` cannot be used with beam search",
        lambda: MODEL.generate(IDS[:1], num_beams=2, streamer=torch.nn.Identity(), **GREEDY),
    ),
}


@contract(4, breaks=(STATELESS, ANY_CACHE))
@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_what_needs_a_cache_of_keys_is_refused(what: str) -> None:
    sentence, call = IMPOSSIBLE[what]
    with pytest.raises(ValueError, match=sentence):
        call()


@contract(4, breaks=UNCHECKED)
@per_case(10, 1)
@given(read=st.integers(1, 9), given_=st.integers(1, 9), chunk=st.sampled_from([None, 2]), embedded=st.booleans())
def test_a_prompt_must_go_on_after_its_state(read: int, given_: int, chunk: int | None, embedded: bool) -> None:
    """The whole text, or new tokens with the whole mask; what ends before the state does is refused."""
    with torch.no_grad():
        state = MODEL(IDS[:, :read], use_cache=True).cache
    before = [tensor.clone() for tensor in state.tensors()]
    text = {"input_ids": IDS[:, :given_]}
    if embedded and chunk is None:
        text = {"inputs_embeds": MODEL.get_input_embeddings()(IDS[:, :given_]).detach()}
    options = {"prefill_chunk_size": chunk, **GREEDY}
    if given_ > read:
        expected = MODEL.generate(IDS[:, :given_], attention_mask=ONES[:, :given_], **GREEDY)
        got = MODEL.generate(**text, attention_mask=ONES[:, :given_], cache=state, **options)
        assert torch.equal(got[:, -3:], expected[:, -3:])
        return
    with pytest.raises(ValueError, match=f"has read {read} columns, the attention_mask has {given_}"):
        MODEL.generate(**text, attention_mask=ONES[:, :given_], cache=state, **options)
    assert all(torch.equal(a, b) for a, b in zip(state.tensors(), before, strict=True))


@contract(4, breaks=ANY_BATCH)
@pytest.mark.parametrize("options", [{"num_beams": 2}, {"do_sample": True, "num_return_sequences": 2}])
def test_a_state_of_other_rows_is_refused(options: dict[str, object]) -> None:
    with torch.no_grad():
        state = MODEL(IDS[:, :5], use_cache=True).cache
    with pytest.raises(ValueError, match="cache holds 2 rows, the input has 4"):
        MODEL.generate(IDS, attention_mask=ONES, cache=state, max_new_tokens=3, pad_token_id=0, **options)
    assert state.get_seq_length() == 5


def test_all_that_generation_can_return_is_returned() -> None:
    asked = ("output_scores", "output_logits", "output_hidden_states", "output_attentions", "return_dict_in_generate")
    out = MODEL.generate(IDS, attention_mask=ONES, **GREEDY, **dict.fromkeys(asked, True))
    assert len(out.scores) == len(out.logits) == len(out.hidden_states) == 3
    assert out.attentions == (None, None, None)
