"""Promise 4: a beam's score is the log-probability that the full forward pass gives its hypothesis."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from .promises import Mutation, contract
from .readings import KINDS, model_of, per_case
from .test_generate_tokens import Prompts

UNTURNED_LAYERS = Mutation(
    "state.py",
    "self.map(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))",
    "self.map(lambda tensor: tensor)",
    "beams change places, the states of the layers do not",
)
FIRST_BEAM = Mutation(
    "state.py",
    "self._map_rows(lambda tensor: tensor.index_select(0, beam_idx.to(tensor.device)))",
    "self._map_rows(lambda tensor: tensor[:1].expand(tensor.shape[0]))",
    "all beams stand where the first does",
)


@contract(4, breaks=(UNTURNED_LAYERS, FIRST_BEAM))
@pytest.mark.parametrize("case", KINDS)
@per_case(2)
@given(
    lengths=st.integers(1, 9).map(lambda length: [5, length]),
    beams=st.integers(2, 5),
    fewer=st.integers(0, 4),
    end=st.sampled_from([None, 3, [2, 7, 13]]),
    stopping=st.sampled_from([False, True, "never"]),
    seed=st.integers(0, 2**16),
)
def test_a_hypothesis_scores_its_log_probability(
    case: str, lengths: list[int], beams: int, fewer: int, end: object, stopping: object, seed: int
) -> None:
    """Any number of beams and of hypotheses returned, padded prompts, hypotheses that end early."""
    model, prompts = model_of(case), Prompts(lengths, seed)
    options = {
        "num_beams": beams,
        "num_return_sequences": max(beams - fewer, 1),
        "length_penalty": 0.0,
        "early_stopping": stopping,
        "eos_token_id": end,
        "max_new_tokens": 6,
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    cached = prompts.generate(model, **options)
    plain = prompts.generate(model, **options, use_cache=False)
    assert torch.equal(cached.sequences, plain.sequences)
    ends, width = {end} if isinstance(end, int) else set(end or []), prompts.ids.shape[1]
    each = options["num_return_sequences"]
    for number, (sequence, score) in enumerate(zip(cached.sequences, cached.sequences_scores, strict=True)):
        own = lengths[number // each]
        text = sequence[width - own :]
        written = text[own:].tolist()
        last = next((at for at, token in enumerate(written) if token in ends), len(written) - 1)
        with torch.no_grad():
            log_probability = model(text[None], use_cache=False).logits[0].log_softmax(-1)
        chosen = log_probability[:-1].gather(-1, text[1:, None])[own - 1 : own + last, 0]
        assert abs(chosen.sum().item() - score.item()) <= 1e-4
