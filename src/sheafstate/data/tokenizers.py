"""Tokenizers: bytes, characters, byte pairs learned from the text, or a saved one.

All are ``tokenizers`` models inside a ``PreTrainedTokenizerFast``, so that ``AutoTokenizer`` loads them from a
checkpoint without code of ours, and all give any text back as it was: there is no normaliser, no prefix space and no
clean-up, and whatever is not in the vocabulary is spelt in bytes. The vocabulary has one special token, the end of a
text, which also stands before a text and fills up rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sheafstate.data.readers import END_OF_TEXT
from sheafstate.errors import InputError

__all__ = ["byte_tokenizer", "char_tokenizer", "load_tokenizer", "put_mark_before", "saved_tokenizer", "train_bpe"]

NUM_BYTES = 256
_MOST_TOKENS = 1 << 24
_PIECE = 1 << 20  # characters given to the trainer at a time


def load_tokenizer(spec: str | Path, documents: Iterable[str] = ()) -> PreTrainedTokenizerBase:
    """The tokenizer that a specification names.

    Args:
        spec: ``byte``; ``char``; ``bpe:N`` with N tokens in the vocabulary, the special one included; or a folder
            that holds a saved tokenizer.
        documents: the text from which ``char`` and ``bpe`` learn their vocabulary.

    Raises:
        InputError: the specification is none of these, or the folder holds no tokenizer that can be used.
    """
    name, _, size = str(spec).partition(":")
    if str(spec) == "byte":
        return byte_tokenizer()
    if str(spec) == "char":
        return char_tokenizer(documents)
    if name == "bpe":
        least = NUM_BYTES + 1
        if not size.isdecimal() or int(size) < least:
            raise InputError(f"a byte-pair tokenizer is written bpe:N with N of at least {least}, not {str(spec)!r}")
        return train_bpe(documents, int(size))
    if _is_folder(spec):
        return saved_tokenizer(spec)
    raise InputError(f"the tokenizer must be byte, char, bpe:N or the folder of a saved one, not {str(spec)!r}")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each byte of UTF-8, its id the byte's value, and the special token after them: 257 in all."""
    vocabulary = {symbol: value for value, symbol in enumerate(_byte_symbols())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return _wrap(backend)


def char_tokenizer(documents: Iterable[str]) -> PreTrainedTokenizerFast:
    """A token for each character of ``documents`` in the order of code points, then bytes for all other characters.

    Of the 256 bytes only those are in the vocabulary that can occur in the spelling of a character that is not.
    """
    characters = sorted(set().union(*map(set, documents)))
    known = set(characters)
    ascii_left = (value for value in range(0x80) if chr(value) not in known)
    multi = (value for value in range(0x80, 0xF5) if value not in (0xC0, 0xC1))  # those two never occur in UTF-8
    spelling = [f"<0x{value:02X}>" for value in (*ascii_left, *multi)]
    vocabulary = {token: number for number, token in enumerate((*characters, *spelling))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return _wrap(backend)


def train_bpe(documents: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Learn byte pairs, split at words as GPT-2 does.

    Args:
        documents: the text to learn from. A text with too few pairs that occur twice gives a smaller vocabulary.
        vocab_size: tokens at the most, the special one included.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_pieces(documents), trainer)
    return _wrap(backend)


def saved_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """Load a tokenizer from a folder; nothing in the folder is run.

    Raises:
        InputError: there is no ``tokenizer.json``, it cannot be read, or it knows no end-of-text token.
    """
    if not (Path(folder) / "tokenizer.json").is_file():
        raise InputError(f"{folder} holds no tokenizer: the file tokenizer.json is missing")
    try:
        # not AutoTokenizer, which would offer to run a stranger's code
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exception for a file it cannot parse
        raise InputError(f"the tokenizer in {folder} cannot be read: {error}") from error
    for trace in ("is_local", "local_files_only"):  # how it was loaded is no part of what is saved again
        tokenizer.init_kwargs.pop(trace, None)
    if tokenizer.eos_token_id is None:
        raise InputError(f"the tokenizer in {folder} names no end-of-text token (eos_token)")
    highest = max(tokenizer.get_vocab().values())
    if highest >= _MOST_TOKENS:  # every id up to the highest is passed whenever such a tokenizer is copied
        raise InputError(f"the tokenizer in {folder} has a token of id {highest}; {_MOST_TOKENS - 1} is the highest")
    return tokenizer


def _is_folder(spec: str | Path) -> bool:
    try:
        return Path(spec).is_dir()
    except (OSError, ValueError):  # no file can have that name
        return False


def put_mark_before(tokenizer: PreTrainedTokenizerBase) -> None:
    """Have a tokenizer put its mark before a text, as a token stream does, unless it does so of its own accord."""
    mark = tokenizer.eos_token if tokenizer.bos_token is None else tokenizer.bos_token
    number = tokenizer.convert_tokens_to_ids(mark)
    if tokenizer("a").input_ids[:1] != [number]:
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=[mark, "$A"], special_tokens=[(mark, number)]
        )


def _byte_symbols() -> list[str]:
    """The printable character by which byte-level models write each byte, in the order of the bytes' values.

    Bytes that are printable in Latin-1 stand for themselves; the others take the code points from 256 on, in order.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(NUM_BYTES, 2 * NUM_BYTES))
    return [chr(value if value in printable else next(others)) for value in range(NUM_BYTES)]


def _pieces(documents: Iterable[str]) -> Iterator[str]:
    for text in documents:
        for start in range(0, len(text), _PIECE):
            yield text[start : start + _PIECE]


def _wrap(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )
