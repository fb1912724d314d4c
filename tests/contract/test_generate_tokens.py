"""Promise 4: greedy and sampled tokens are those of the uncached pass, in padded batches and from a kept state."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig

from sheafstate import SheafStateForCausalLM
from tests.variants import VOCABULARY, tokens

from .promises import Mutation, contract
from .readings import KINDS, model_of, per_case

cases = pytest.mark.parametrize("case", KINDS)
unequal = st.lists(st.integers(1, 12), min_size=1, max_size=2).map(lambda lengths: [5, *lengths])

SAME_PLACE = Mutation(
    "rows.py",
    "position=at_end(offset + 1, before.position),",
    "position=at_end(offset, before.position),",
    "the first new token stands where the last of the prompt stood",
)
LAST_ONLY = Mutation(
    "modeling.py",
    'inputs["document_ids"] = documents[:, column]',
    'inputs["document_ids"] = documents[:, -length:]',
    "a prompt read in pieces has the documents of its end",
)
RECOUNTED = Mutation(
    "state.py", "self.length += columns", "self.length = columns", "a state only counts the columns of its last call"
)

CHOICES = (
    {},
    {"do_sample": True, "top_k": 0},
    {"do_sample": True, "temperature": 2.0, "top_p": 0.9, "top_k": 7},
    {"repetition_penalty": 1.8},
    {"guidance_scale": 1.7},
    {"no_repeat_ngram_size": 2, "min_new_tokens": 3},
)


class Prompts:
    """Left-padded prompts of unequal lengths, with documents in each if wanted."""

    def __init__(self, lengths: list[int], seed: int, starts: list[int] | None = None) -> None:
        width = max(lengths)
        self.lengths = lengths
        self.ids = tokens(len(lengths), width, seed)
        self.mask = (torch.arange(width) >= width - torch.tensor(lengths)[:, None]).long()
        self.documents = None
        if starts is not None:
            opened = torch.tensor([width - min(start, n) for start, n in zip(starts, lengths, strict=True)])
            self.documents = (torch.arange(width) >= opened[:, None]).long()

    def generate(self, model: SheafStateForCausalLM, seed: int = 0, **options: object) -> torch.Tensor:
        torch.manual_seed(seed)
        documents = {} if self.documents is None else {"document_ids": self.documents}
        settings = GenerationConfig(pad_token_id=0, **options)
        return model.generate(self.ids, attention_mask=self.mask, generation_config=settings, **documents)

    def alone(self, written: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
        """Each row's last document with what was written, unpadded, and how many of its tokens are the prompt's."""
        width = self.ids.shape[1]
        for row, length in enumerate(self.lengths):
            own = length if self.documents is None else min(length, int(self.documents[row].sum()) or length)
            yield written[row, width - own :][None], own


@contract(4, breaks=(SAME_PLACE, LAST_ONLY))
@cases
@per_case(2)
@given(
    lengths=unequal,
    options=st.sampled_from(CHOICES),
    end=st.sampled_from([None, 3, [5, 11]]),
    piece=st.sampled_from([3, None, 1]),
    starts=st.none() | st.lists(st.integers(1, 12), min_size=3, max_size=3),
    seed=st.integers(0, 2**16),
)
def test_every_choice_of_tokens_is_that_of_the_uncached_pass(
    case: str,
    lengths: list[int],
    options: dict[str, object],
    end: object,
    piece: int | None,
    starts: list[int] | None,
    seed: int,
) -> None:
    """With an end token or none, the prompt read at once or in pieces, in one document or two."""
    model = model_of(case)
    prompts = Prompts(lengths, seed, None if starts is None else starts[: len(lengths)])
    options = {"max_new_tokens": 6, "eos_token_id": end, **options}
    cached = prompts.generate(model, seed, **options, prefill_chunk_size=piece)
    assert torch.equal(cached, prompts.generate(model, seed, **options, use_cache=False))
    if options.keys() == {"max_new_tokens", "eos_token_id"}:
        ends = {end} if isinstance(end, int) else set(end or [])
        for text, own in prompts.alone(cached):
            hold_greedy(model, text, own, ends)


def hold_greedy(model: SheafStateForCausalLM, text: torch.Tensor, prompt: int, ends: set[int]) -> None:
    """Every token written is the best after what stands before it, up to the end token."""
    with torch.no_grad():
        best = model(text, use_cache=False).logits.float().argmax(-1)[0]
    for at in range(prompt, text.shape[1]):
        assert text[0, at] == best[at - 1]
        if int(text[0, at]) in ends:
            return


@contract(4, breaks=(RECOUNTED, SAME_PLACE))
@cases
@per_case(1)
@given(
    lengths=unequal,
    turns=st.lists(st.integers(1, 7), min_size=2, max_size=2),
    embedded=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_generation_goes_on_from_a_returned_state(
    case: str, lengths: list[int], turns: list[int], embedded: bool, seed: int
) -> None:
    """A talk in turns: what was written and what the user adds, with the state of the turn before."""
    model, prompts, state = model_of(case), Prompts(lengths, seed), None
    text, mask = prompts.ids, prompts.mask
    for number, added in enumerate(turns):
        settings = GenerationConfig(max_new_tokens=4, pad_token_id=0, return_dict_in_generate=True)
        given_ = {"input_ids": text}
        if embedded and state is None:
            given_ = {"inputs_embeds": model.get_input_embeddings()(text).detach()}
        out = model.generate(**given_, attention_mask=mask, cache=state, generation_config=settings)
        fresh = model.generate(text, attention_mask=mask, generation_config=settings)
        written = out.sequences[:, -4:]
        assert torch.equal(written, fresh.sequences[:, -4:])
        assert {layer.get_seq_length() for layer in out.cache.layers} == {text.shape[1] + 3}
        state = out.cache
        text = torch.cat([text, written, tokens(len(lengths), added, seed + number)], 1)
        mask = torch.cat([mask, torch.ones(len(lengths), 4 + added, dtype=torch.long)], 1)


@contract(4, breaks=RECOUNTED)
def test_several_samples_of_a_prompt_are_drawn_from_one_state() -> None:
    prompts, model = Prompts([4, 9], 1), model_of("mixture")
    options = {"do_sample": True, "num_return_sequences": 3, "max_new_tokens": 8, "top_k": 0}
    cached = prompts.generate(model, 5, **options)
    assert torch.equal(cached, prompts.generate(model, 5, **options, use_cache=False))
    assert cached.shape == (6, 17)
    assert len({tuple(row.tolist()) for row in cached}) > 2
    assert cached.max() < VOCABULARY
