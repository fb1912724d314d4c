"""Promise 20: any text survives its tokenizer, only tokens are sampled, unfit tokenizers are refused."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sheafstate import SheafStateConfig, SheafStateForCausalLM
from sheafstate.data import END_OF_TEXT, TokenStream, load_tokenizer, read_documents, saved_tokenizer
from sheafstate.errors import InputError
from sheafstate.evaluation import check_fit, load_checkpoint
from tests.variants import SMALL, examples, make_model

from .promises import Mutation, contract

SPECS = ("byte", "char", "bpe:400")
specs = pytest.mark.parametrize("spec", SPECS)

ANY = st.characters(exclude_categories=("Cs",))  # every plane; halves of surrogate pairs are no text
CONTROLS = st.characters(categories=("Cc", "Cf", "Zl", "Zp", "Zs", "Mn"))
SPECIAL = st.sampled_from([END_OF_TEXT, "<|", "|>", "<0x41>", "<0xE2>", "Ġ", "Ċ", "▁", "\ufeff", "\ufffd", "\0", "\r"])
ASIDE = st.characters(min_codepoint=0x10000)
TEXT = st.one_of(
    st.text(ANY),
    st.text(CONTROLS),
    st.text(ASIDE),
    st.text(" \r\n\t'.,!?abn"),
    st.lists(SPECIAL | st.text(ANY, max_size=3)).map("".join),
)
TRAPS = [
    "",
    "  two  spaces , and n't clean 's up .  ",
    "\r\nCRLF\r\nand\rCR alone\n",
    "\t\x00\x01\x1b\x7f\x85\u2028\u2029 controls",
    f"{END_OF_TEXT} inside {END_OF_TEXT}",
    "<0x41><0x0A> looks like bytes",
    "Ġ Ċ Ã the symbols that stand for bytes",
    "\ufeff▁ and \ufeff and \ufffd",
    "e\u0301 é \u1e9b\u0323 not normalised",
    "👩‍👩‍👧‍👦 🇺🇳 \U0010ffff \ue000",
]

SPACED = Mutation(
    "data/tokenizers.py",
    "pre_tokenizers.ByteLevel(add_prefix_space=False)\n",
    "pre_tokenizers.ByteLevel(add_prefix_space=True)\n",
    "byte pairs put a space before a text",
)
NO_FALLBACK = Mutation(
    "data/tokenizers.py",
    "merges=[], byte_fallback=True",
    "merges=[], byte_fallback=False",
    "characters that were not learned are dropped",
)
ASCII_FORGOTTEN = Mutation(
    "data/tokenizers.py",
    "(*ascii_left, *multi)",
    "multi",
    "the bytes of ASCII characters that were not learned are missing",
)
SPECIAL_READ = Mutation(
    "data/tokens.py",
    "backend.encode_special_tokens = True",
    "backend.encode_special_tokens = False",
    "what looks like the mark between documents is read as one",
)
NAMELESS = Mutation(
    "evaluation/checkpoint.py",
    "    _never_sample_the_nameless(model, tokenizer)\n",
    "",
    "the ids that pad a vocabulary are sampled",
)
NO_CHECK = Mutation(
    "evaluation/checkpoint.py",
    "    check_fit(model, tokenizer)\n",
    "",
    "a checkpoint is loaded whether or not its tokenizer fits",
)
ENOUGH = Mutation(
    "evaluation/checkpoint.py",
    "if have != need and have not in",
    "if have < need and have not in",
    "any larger vocabulary passes for a padded one",
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[PreTrainedTokenizerBase]]:
    """Each kind as it is made, and as it comes back from a folder, by the package and by ``AutoTokenizer``."""
    learned = [read_documents("tinyshakespeare")[0][:20_000], "é漢", "a    b\n\n\n\nc" * 400]
    found = {}
    for spec in SPECS:
        made, folder = load_tokenizer(spec, learned), tmp_path_factory.mktemp("tokenizer")
        made.save_pretrained(folder)
        found[spec] = [made, saved_tokenizer(folder), AutoTokenizer.from_pretrained(folder)]
    return found


def with_traps(test):
    for trap in TRAPS:
        test = example(text=trap)(test)
    return test


@contract(20, breaks=(SPACED, NO_FALLBACK, ASCII_FORGOTTEN))
@specs
@examples(60)
@with_traps
@given(text=TEXT)
def test_any_text_comes_back(spec: str, text: str, tokenizers) -> None:
    first, *others = tokenizers[spec]
    for how in ({}, {"split_special_tokens": True}):
        ids = first(text, **how).input_ids
        assert all(0 <= token < len(first) for token in ids)
        assert first.decode(ids) == text
        for other in others:
            assert other(text, **how).input_ids == ids
            assert other.decode(ids) == text


@contract(20, breaks=SPECIAL_READ)
@specs
@examples(20)
@with_traps
@given(text=TEXT)
def test_any_text_comes_back_from_a_stream_between_its_marks(spec: str, text: str, tokenizers) -> None:
    for tokenizer in tokenizers[spec]:
        stream = TokenStream.build(tokenizer, ["before", text, "after"])
        assert len(stream.starts) == 2 + bool(text)
        pieces = [stream.tokens[a:b].tolist() for a, b in zip(stream.starts, stream.ends, strict=True)]
        mark = tokenizer.eos_token_id
        assert all(piece[0] == piece[-1] == mark and mark not in piece[1:-1] for piece in pieces)
        assert [tokenizer.decode(piece[1:-1]) for piece in pieces[1:-1]] == [text] * bool(text)


WAYS = st.fixed_dictionaries(
    {
        "do_sample": st.booleans(),
        "num_beams": st.integers(1, 3),
        "temperature": st.sampled_from([0.3, 1.0, 10.0]),
        "top_k": st.sampled_from([0, 5, 400]),
        "top_p": st.sampled_from([0.5, 1.0]),
        "use_cache": st.booleans(),
    }
)


def save_padded(spec: str, size: int, folder: Path) -> Path:
    """A checkpoint whose vocabulary is padded, and whose likeliest ids by far are those that pad it."""
    tokenizer = load_tokenizer(spec, ["some letters"])
    assert len(tokenizer) < size
    model = make_model("mixture", torch.float32, vocab_size=size, tie_word_embeddings=False, num_layers=1)
    with torch.no_grad():
        model.lm_head.weight[len(tokenizer) :] *= 50
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> list:
    """Models with padded vocabularies, and their tokenizers."""
    sizes = (("byte", 320), ("char", 256))
    return [load_checkpoint(save_padded(*kind, tmp_path_factory.mktemp("padded"))) for kind in sizes]


@contract(20, breaks=NAMELESS)
@settings(examples(8), phases=(Phase.explicit, Phase.generate))  # an example takes too long to be made small
@given(kind=st.integers(0, 1), how=WAYS, rows=st.integers(1, 3), seed=st.integers(0, 99))
def test_no_id_outside_the_vocabulary_is_sampled(kind: int, how: dict, rows: int, seed: int, padded) -> None:
    model, tokenizer = padded[kind]
    torch.manual_seed(seed)
    ids = torch.randint(len(tokenizer), (rows, 5))
    if not how["do_sample"]:
        how = {name: how[name] for name in ("do_sample", "num_beams", "use_cache")}
    written = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, pad_token_id=0, **how)
    assert written.max() < len(tokenizer)


@contract(20, breaks=NAMELESS)
def test_what_must_not_be_sampled_is_saved_with_the_model(padded, tmp_path: Path) -> None:
    model, tokenizer = padded[0]
    model.save_pretrained(tmp_path)
    saved = SheafStateForCausalLM.from_pretrained(tmp_path)
    assert saved.generation_config.suppress_tokens == list(range(len(tokenizer), 320))


@contract(20, breaks=ENOUGH)
@examples(30)
@given(size=st.integers(2, 700), letters=st.integers(0, 120))
@example(size=257, letters=0)
@example(size=320, letters=0)
def test_a_tokenizer_fits_a_vocabulary_of_its_size_or_padded(size: int, letters: int) -> None:
    documents = ["".join(map(chr, range(0x3B1, 0x3B1 + letters)))]
    tokenizer = load_tokenizer("char" if letters else "byte", documents)
    need = len(tokenizer)
    with torch.device("meta"):
        model = SheafStateForCausalLM(SheafStateConfig(**SMALL | {"vocab_size": size, "heads": {"local": 1}}))
    if size == need or size in (-(-need // 64) * 64, -(-need // 128) * 128):
        check_fit(model, tokenizer)
    else:
        with pytest.raises(InputError, match=f"does not fit the model: it has {need} tokens, the model {size}$"):
            check_fit(model, tokenizer)


@contract(20, breaks=NO_CHECK)
@pytest.mark.parametrize("size", [22, 250, 256, 258, 512])
def test_a_checkpoint_with_a_tokenizer_that_does_not_fit_is_refused(size: int, tmp_path: Path) -> None:
    make_model("mixture", torch.float32, vocab_size=size).save_pretrained(tmp_path)
    load_tokenizer("byte").save_pretrained(tmp_path)
    with pytest.raises(InputError, match=f"has 257 tokens, the model {size}"):
        load_checkpoint(tmp_path)


def test_gaps_between_ids_are_no_tokens(tmp_path: Path) -> None:
    """The highest id may lie beyond the number of tokens; the model must have it, and not sample those that lack."""
    tokenizer = load_tokenizer("byte")
    facts = json.loads(tokenizer.backend_tokenizer.to_str())
    facts["model"]["vocab"]["ÿ"] = 299
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(facts))
    make_model("mixture", torch.float32, vocab_size=257).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="has 300 tokens, the model 257"):
        load_checkpoint(tmp_path)
    make_model("mixture", torch.float32, vocab_size=300).save_pretrained(tmp_path)
    assert load_checkpoint(tmp_path)[0].generation_config.suppress_tokens == [255, *range(257, 299)]
