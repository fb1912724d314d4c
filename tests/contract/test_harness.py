"""Promises 9 and 23: lm-evaluation-harness takes a checkpoint, its figures are ours, and no batch moves them."""

import json
import logging
import math
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from sheafstate.data import load_tokenizer
from sheafstate.evaluation import evaluate, load_checkpoint
from sheafstate.evaluation.tasks import OFFLINE
from sheafstate.llama import from_llama
from tests.checkpoints import save_small_checkpoint
from tests.variants import examples

from .promises import Mutation, contract

harness = pytest.importorskip("sheafstate.evaluation.harness")
instance = pytest.importorskip("lm_eval.api.instance").Instance
HFLM = pytest.importorskip("lm_eval.models.huggingface").HFLM

CLOSE = 1e-4
FEW = settings(examples(5), phases=(Phase.explicit, Phase.generate))  # an example takes too long to be made small
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "eval"

PAIRS = {
    "agreement": [["The cats sleep.", "The cats sleeps."], ["A dog has barked.", "A dog have barked."]] * 3,
    "order": [["Who did she see?", "Who she did see?"], ["He is here, é!", "Is he here, é!"]] * 3,
    "same": [["It is so.", "It is so."]],
}
PASSAGES = [
    "She gave him a",
    "To be or not to be, that is the question",
    "one two",
    "naïve  café, 漢 字",
    "x" * 90 + " y",
]

CUT = Mutation(
    "evaluation/harness.py",
    "return self._max_length or (UNBOUNDED if",
    "return self._max_length or (16 if",
    "long contexts are cut off at the left",
)
MARKLESS = Mutation(
    "data/tokenizers.py", 'single=[mark, "$A"]', 'single=["$A"]', "the mark before a context is missing"
)
FORGETFUL = Mutation(
    "evaluation/likelihood.py", "cache=cache,", "cache=None,", "each chunk of a text is read from nothing"
)
MISPLACED = Mutation(
    "evaluation/likelihood.py",
    "places[documents[real]]",
    "documents[real]",
    "an empty text moves the figures of those after it",
)
SPACED = Mutation(
    "evaluation/tasks.py",
    '"target_delimiter": ""',
    '"target_delimiter": " "',
    "a space stands before the sentences of BLiMP",
)
SWAPPED = Mutation(
    "evaluation/tasks.py",
    '[row["good"], row["bad"]]',
    '[row["bad"], row["good"]]',
    "the wrong sentence counts as the right one",
)
FIRST_WORD = Mutation(
    "data/task_files.py", ".rpartition(", ".partition(", "all but the first word of a passage is to be guessed"
)
POOLED = Mutation("evaluation/harness.py", "weight_by_size=False", "weight_by_size=True", "large paradigms weigh more")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with made-up rows in the form of the published files."""
    folder = tmp_path_factory.mktemp("files")
    lines = [{"uid": uid, "field": "f", "term": "t", "pairs": pairs} for uid, pairs in PAIRS.items()]
    (folder / "blimp.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    lines = [{"text": text} for text in PASSAGES]
    (folder / "lambada_openai_test.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return folder


def plain(model, tokenizer, **how):
    """lm_eval's own type ``hf``."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", **how)


_LMS: dict = {}
"""What was loaded already."""


def ours(folder: Path, rows: int, **how):
    """A checkpoint by our type, with so many requests at a time."""
    key = (folder, tuple(how.items()))
    if key not in _LMS:
        _LMS[key] = harness.SheafStateLM(str(folder), **how)
    _LMS[key].batch_size_per_gpu = rows
    return _LMS[key]


def requests(kind: str, rows: list[tuple]) -> list:
    return [instance(request_type=kind, doc={}, arguments=row, idx=0) for row in rows]


def nats(model, tokenizer, text: str) -> float:
    return evaluate(model, tokenizer, [text]).nats if text else 0.0


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
SOME = st.lists(TEXTS, min_size=1, max_size=9).filter(any)


@contract(23, 9, breaks=(FORGETFUL, MISPLACED))
@FEW
@given(texts=SOME, rows=st.sampled_from([1, 4, 16]), chunk=st.integers(2, 30))
def test_the_likelihood_of_texts_is_ours_and_lm_eval_s(
    texts: list[str], rows: int, chunk: int, checkpoint: Path
) -> None:
    lm = ours(checkpoint, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "CHUNK", chunk)
        found = lm.loglikelihood_rolling(requests("loglikelihood_rolling", [(text,) for text in texts]))
    model, tokenizer = lm.model, load_checkpoint(checkpoint)[1]
    assert found == pytest.approx([-nats(model, tokenizer, text) for text in texts], rel=CLOSE)
    # lm_eval fills its last window up with tokens that it has counted already; where it need not, it reads as we do
    full = [text for text in texts if text and (len(text.encode()) <= chunk or len(text.encode()) % chunk == 0)]
    if not full:
        return
    theirs = plain(model, tokenizer, batch_size=rows, max_length=chunk).loglikelihood_rolling(
        requests("loglikelihood_rolling", [(text,) for text in full]), disable_tqdm=True
    )
    metrics = evaluate(model, tokenizer, full, context=chunk, carry=False)
    assert -sum(theirs) == pytest.approx(metrics.nats, rel=CLOSE)
    assert math.exp(-sum(theirs) / metrics.tokens) == pytest.approx(metrics.perplexity, rel=CLOSE)


PIECE = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
CONTEXT = st.builds(lambda piece, times: piece * times, PIECE, st.integers(0, 8))


@contract(23, 9, breaks=(CUT, MARKLESS))
@FEW
@given(pairs=st.lists(st.tuples(CONTEXT, PIECE), min_size=1, max_size=9), rows=st.sampled_from([1, 4, 16]))
def test_the_likelihood_of_a_continuation_is_ours_and_lm_eval_s(
    pairs: list[tuple[str, str]], rows: int, checkpoint: Path
) -> None:
    asked = requests("loglikelihood", pairs)
    lm = ours(checkpoint, rows)
    model, tokenizer = load_checkpoint(checkpoint)
    found = [value for value, _ in lm.loglikelihood(asked, disable_tqdm=True)]
    # spaces at the end of a context belong to the continuation, lm_eval says
    contexts = [context.rstrip() for context, _ in pairs]
    expected = [
        nats(model, tokenizer, c) - nats(model, tokenizer, a + b) for c, (a, b) in zip(contexts, pairs, strict=True)
    ]
    assert found == pytest.approx(expected, rel=CLOSE, abs=1e-3)
    asked = requests("loglikelihood", [pair for pair in pairs if pair[0].strip()])
    unmarked = ours(checkpoint, rows, add_bos_token=False).loglikelihood(asked, disable_tqdm=True)
    theirs = plain(model, tokenizer, batch_size=1).loglikelihood(asked, disable_tqdm=True)
    assert [value for value, _ in unmarked] == pytest.approx([value for value, _ in theirs], rel=CLOSE)
    assert [greedy for _, greedy in unmarked] == [greedy for _, greedy in theirs]


@contract(23, 9, breaks=(SPACED, SWAPPED, POOLED))
def test_blimp_asks_which_sentence_is_the_likelier(checkpoint: Path, files: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    expected = {
        f"blimp_{uid}": sum(nats(model, tokenizer, good) <= nats(model, tokenizer, bad) for good, bad in pairs)
        / len(pairs)
        for uid, pairs in PAIRS.items()
    }
    costs = {text: nats(model, tokenizer, text) for pairs in PAIRS.values() for pair in pairs for text in pair}
    for rows in (1, 4, 16):
        lm, seen = ours(checkpoint, rows), {}

        def ask(asked: list, lm=lm, seen=seen) -> list:
            answers = type(lm).loglikelihood(lm, asked)
            seen |= {request.args: -value for request, (value, _) in zip(asked, answers, strict=True)}
            return answers

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lm, "loglikelihood", ask)
            found = harness.run_task("blimp", lm, configs=OFFLINE["blimp"].configs(files))
        assert seen == {("", text): pytest.approx(cost, rel=CLOSE) for text, cost in costs.items()}
        assert {name: figures["acc"] for name, figures in found["subtasks"].items()} == expected
        assert found["results"]["blimp"]["acc"] == pytest.approx(sum(expected.values()) / len(expected))
        assert found["examples"] == sum(map(len, PAIRS.values()))


@contract(23, 9, breaks=(FIRST_WORD, MARKLESS))
def test_lambada_asks_for_the_last_word(checkpoint: Path, files: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    costs = [nats(model, tokenizer, text) - nats(model, tokenizer, text.rpartition(" ")[0]) for text in PASSAGES]
    for rows in (1, 4, 16):
        found = harness.run_task("lambada", ours(checkpoint, rows), configs=OFFLINE["lambada"].configs(files))
        assert math.log(found["results"]["lambada"]["perplexity"]) == pytest.approx(sum(costs) / len(costs), rel=CLOSE)
        assert found["results"]["lambada"]["acc"] == 0
    fewer = harness.run_task("lambada", ours(checkpoint, 4), configs=OFFLINE["lambada"].configs(files), limit=2)
    assert fewer["examples"] == 2


@contract(23)
def test_a_llama_and_its_copy_reach_the_same(files: Path, tmp_path: Path) -> None:
    """The one by lm_eval's type ``hf``, the other by ours: the complete site with the Llama's weights."""
    tokenizer = load_tokenizer("byte")
    config = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **config)).eval()
    from_llama(llama).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    theirs = plain(llama, tokenizer, batch_size=4)
    for name, task in OFFLINE.items():
        configs = task.configs(files)
        found = harness.run_task(name, ours(tmp_path, 4, add_bos_token=False), configs=configs)
        assert found == _close(harness.run_task(name, theirs, configs=configs))


def _close(found: dict) -> dict:
    """The same figures, each within the limit."""
    return {
        key: value
        if not isinstance(value, dict)
        else {name: pytest.approx(of, rel=CLOSE) for name, of in value.items()}
        for key, value in found.items()
    }
