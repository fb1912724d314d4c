"""The likelihood of a text is the sum over its tokens, however it is cut up, batched and padded."""

import math

import pytest
import torch

from sheafstate.errors import InputError
from sheafstate.evaluation import Metrics, carries_state, evaluate, nats_by_position

DOCUMENTS = ["First Citizen:\nBefore we", "", "a", "漢字 and é", "All:\nSpeak, speak. "]
MODELS = ("sheaf", "llama")


@torch.no_grad()
def by_hand(model, text: str, begin: int = 0, end: int | None = None) -> float:
    """Nats of the tokens ``begin`` to ``end`` of a text, read from its mark without cut, batch or padding."""
    ids = torch.tensor([256, *text.encode()])
    log_probs = model(input_ids=ids[None, :-1]).logits[0].double().log_softmax(-1)
    return -log_probs.gather(1, ids[1:, None])[slice(begin, end)].sum().item()


@torch.no_grad()
def windows_by_hand(model, text: str, context: int, stride: int) -> float:
    """The same in windows, each from nothing, each token counted by the first window that holds it."""
    ids = torch.tensor([256, *text.encode()])
    nats, counted = 0.0, 0
    for begin in range(0, len(ids), stride):
        read, targets = ids[begin : begin + context], ids[begin + 1 : begin + context + 1]
        log_probs = model(input_ids=read[None]).logits[0, : len(targets)].double().log_softmax(-1)
        fresh = begin + len(targets) - counted
        nats -= log_probs.gather(1, targets[:, None])[len(targets) - fresh :].sum().item()
        counted += fresh
        if counted == len(ids) - 1:
            return nats
    raise AssertionError("windows end before the text does")


@torch.no_grad()
def first_by_hand(model, text: str, context: int) -> float:
    """Nats of the tokens that each window begins with."""
    ids = torch.tensor([256, *text.encode()])
    pairs = [(ids[at], ids[at + 1]) for at in range(0, len(ids) - 1, context)]
    return -sum(model(input_ids=a[None, None]).logits[0, -1].double().log_softmax(-1)[b].item() for a, b in pairs)


@pytest.mark.parametrize("batch_size", [1, 2, 4])
@pytest.mark.parametrize("context", [1, 7, 1000])
def test_a_carried_state_reads_whole_documents(context: int, batch_size: int, models, tokenizer) -> None:
    model = models["sheaf"]
    metrics = evaluate(model, tokenizer, DOCUMENTS, context=context, batch_size=batch_size)
    assert metrics.nats == pytest.approx(sum(by_hand(model, text) for text in DOCUMENTS if text), rel=1e-5)
    assert metrics.tokens == metrics.bytes == sum(len(text.encode()) for text in DOCUMENTS)


@pytest.mark.parametrize(("context", "stride"), [(8, 8), (8, 3), (5, 1), (1, 1), (1000, 1000)])
@pytest.mark.parametrize("name", MODELS)
def test_windows_count_each_token_once(name: str, context: int, stride: int, models, tokenizer) -> None:
    model = models[name]
    expected = sum(windows_by_hand(model, text, context, stride) for text in DOCUMENTS if text)
    for batch_size in (3, 16):
        metrics = evaluate(
            model, tokenizer, DOCUMENTS, context=context, stride=stride, carry=False, batch_size=batch_size
        )
        assert metrics.nats == pytest.approx(expected, rel=1e-5)
        assert metrics.tokens == sum(len(text.encode()) for text in DOCUMENTS)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_nats_by_position_add_up_to_those_of_the_windows(name: str, batch_size: int, models, tokenizer) -> None:
    model, context = models[name], 8
    found = nats_by_position(model, tokenizer, DOCUMENTS, context=context, batch_size=batch_size)
    whole = evaluate(model, tokenizer, DOCUMENTS, context=context, carry=False)
    assert found[0].sum().item() == pytest.approx(whole.nats, rel=1e-6)
    assert found[1].sum().item() == whole.tokens
    texts = [text for text in DOCUMENTS if text]
    assert found[1, 0] == sum(-(-len(text.encode()) // context) for text in texts)  # a window has a first position
    first = sum(first_by_hand(model, text, context) for text in texts)
    assert found[0, 0].item() == pytest.approx(first, rel=1e-5)
    with pytest.raises(InputError, match="no text"):
        nats_by_position(model, tokenizer, [""], context=4)


def test_a_state_is_carried_where_there_is_one(models, tokenizer) -> None:
    assert [carries_state(models[name]) for name in MODELS] == [True, False]
    for name, carry in (("sheaf", True), ("llama", False)):
        asked, default = (
            evaluate(models[name], tokenizer, DOCUMENTS, context=8, **how) for how in ({"carry": carry}, {})
        )
        assert asked == default
    strided = evaluate(models["sheaf"], tokenizer, DOCUMENTS, context=8, stride=8)
    assert strided == evaluate(models["sheaf"], tokenizer, DOCUMENTS, context=8, carry=False)


def test_a_guess_costs_the_logarithm_of_the_vocabulary(models, tokenizer) -> None:
    model = type(models["llama"])(models["llama"].config)
    torch.nn.init.zeros_(model.lm_head.weight)
    metrics = evaluate(model, tokenizer, ["漢字"])
    assert (metrics.tokens, metrics.bytes) == (6, 6)
    assert metrics.nats_per_token == pytest.approx(math.log(257), rel=1e-6)
    assert metrics.bits_per_byte == pytest.approx(math.log2(257), rel=1e-6)
    assert metrics.perplexity == pytest.approx(257, rel=1e-5)


def test_bits_are_per_byte_and_nats_per_token() -> None:
    metrics = Metrics(nats=math.log(2) * 12, tokens=4, bytes=6)
    assert metrics.nats_per_token == pytest.approx(3 * math.log(2))
    assert metrics.bits_per_byte == pytest.approx(2)
    assert metrics.perplexity == pytest.approx(8)
    assert metrics.record().keys() == {"nats", "tokens", "bytes", "nats_per_token", "bits_per_byte", "perplexity"}
    assert Metrics(nats=1e6, tokens=1, bytes=1).perplexity == math.inf


@pytest.mark.parametrize("training", [True, False])
def test_the_model_stays_in_its_mode(training: bool, models, tokenizer) -> None:
    model = models["sheaf"].train(training)
    evaluate(model, tokenizer, ["a"])
    assert model.training is training
    model.eval()


def test_what_cannot_be_measured_is_refused(models, tokenizer) -> None:
    for documents in ([], ["", ""]):
        with pytest.raises(InputError, match="no text"):
            evaluate(models["llama"], tokenizer, documents)
    with pytest.raises(InputError, match="LlamaForCausalLM has no state to carry"):
        evaluate(models["llama"], tokenizer, ["a"], carry=True)
    with pytest.raises(InputError, match="a stride is for windows"):
        evaluate(models["sheaf"], tokenizer, ["a"], carry=True, stride=3)
    with pytest.raises(InputError, match="not 0 and 8"):
        evaluate(models["sheaf"], tokenizer, ["a"], context=0)
    broken = type(models["llama"])(models["llama"].config)
    torch.nn.init.constant_(broken.lm_head.weight, float("inf"))
    with pytest.raises(InputError, match="not finite"):
        evaluate(broken, tokenizer, ["a"])
