"""Promise 4: text streams as it is written, and stops at the first stop string."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig, TextStreamer
from transformers.generation.streamers import BaseStreamer

from sheafstate import SheafStateForCausalLM
from sheafstate.data.tokenizers import byte_tokenizer

from .promises import Mutation, contract
from .readings import model_of, per_case

TOKENIZER = byte_tokenizer()
LETTERS = TOKENIZER("abcdefgh ", add_special_tokens=False).input_ids
OTHERS = sorted(set(range(len(TOKENIZER))) - set(LETTERS))
NEW = 8
TRIED = ("mixture", "retrieval", "complete")

HANDED_ON = Mutation(
    "modeling.py",
    "return {name: value for name, value in inputs.items() if name in GENERATION_ARGUMENTS}",
    "return inputs",
    "a step is handed the tokenizer",
)
STALE = Mutation(
    "state.py",
    "self.rows, self.signature, self.begun, self._torn = rows,",
    "self.rows, self.signature, self.begun, self._torn = self.rows or rows,",
    "rows stay where their first call left them",
)

cases = pytest.mark.parametrize("case", TRIED)
prompts = st.text("abcdefgh ", min_size=1, max_size=12)


class Collected(BaseStreamer):
    """All that a streamer is given."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.tokens += value.flatten().tolist()

    def end(self) -> None:
        self.ended = True


class Heard(TextStreamer):
    """The text as it is heard, piece by piece."""

    def __init__(self) -> None:
        super().__init__(TOKENIZER, skip_prompt=True)
        self.text = ""

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.text += text


def written(model: SheafStateForCausalLM, prompt: str, **options: object) -> torch.Tensor:
    """A greedy continuation in few letters, so that strings come back."""
    streamer = options.pop("streamer", None)
    ids = TOKENIZER(prompt, return_tensors="pt", add_special_tokens=False).input_ids
    settings = GenerationConfig(max_new_tokens=NEW, pad_token_id=0, suppress_tokens=OTHERS, **options)
    return model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        generation_config=settings,
        tokenizer=TOKENIZER,
        streamer=streamer,
    )[0]


@contract(4, breaks=STALE)
@cases
@per_case(3, len(TRIED))
@given(prompt=prompts)
def test_a_stream_is_what_is_returned(case: str, prompt: str) -> None:
    model, collected, heard = model_of(case, vocab_size=len(TOKENIZER)), Collected(), Heard()
    plain = written(model, prompt, use_cache=False)
    assert torch.equal(written(model, prompt, streamer=collected), plain)
    assert collected.tokens == plain.tolist()
    assert collected.ended
    written(model, prompt, streamer=heard)
    assert heard.text == TOKENIZER.decode(plain[len(prompt) :])


@contract(4, breaks=HANDED_ON)
@cases
@per_case(3, len(TRIED))
@given(prompt=prompts, begin=st.integers(0, NEW - 1), length=st.integers(1, 4), use_cache=st.booleans())
def test_writing_stops_at_the_first_stop_string(
    case: str, prompt: str, begin: int, length: int, use_cache: bool
) -> None:
    model = model_of(case, vocab_size=len(TOKENIZER))
    free = TOKENIZER.decode(written(model, prompt))
    stop = free[len(prompt) + begin :][:length]
    first = next(end for end in range(len(prompt) + 1, len(free) + 1) if free[:end].endswith(stop))
    stopped = written(model, prompt, stop_strings=[stop, "never"], use_cache=use_cache)
    assert TOKENIZER.decode(stopped) == free[:first]
