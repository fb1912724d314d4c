"""A run's text as token streams, encoded once and shared by its processes and its resumes."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from sheafstate.data import TokenStream, load_tokenizer, read_corpus, saved_tokenizer
from sheafstate.errors import InputError
from sheafstate.training.files import read_json, write_json
from sheafstate.training.options import TrainingOptions

__all__ = ["RunData", "prepare_data"]


@dataclass(frozen=True)
class RunData:
    """A tokenizer and what it makes of the text; ``validation`` is ``None`` where nothing is held out."""

    tokenizer: PreTrainedTokenizerBase
    train: TokenStream
    validation: TokenStream | None


def prepare_data(options: TrainingOptions, folder: Path) -> RunData:
    """Encode the run's text into ``folder``, or map into memory what an earlier call left there.

    The streams are used again only if texts and tokenizer are those they were made from.

    Raises:
        InputError: as :func:`~sheafstate.data.read_corpus` and :func:`~sheafstate.data.load_tokenizer`; or a run is
            resumed with another text or tokenizer.
    """
    corpus = read_corpus(
        options.data,
        options.validation_data,
        share=options.validation_share,
        separator=options.separator,
        field=options.text_field,
    )
    kept = options.resume and (folder / "tokenizer" / "tokenizer.json").is_file()
    tokenizer = saved_tokenizer(folder / "tokenizer") if kept else load_tokenizer(options.tokenizer, corpus.train)
    source = {
        "train": _fingerprint(corpus.train),
        "validation": _fingerprint(corpus.validation),
        "tokenizer": _fingerprint([tokenizer.backend_tokenizer.to_str()]),
    }
    parts = {"train": corpus.train} | ({"validation": corpus.validation} if any(corpus.validation) else {})
    note = folder / "source.json"
    made_from = read_json(note) if note.is_file() else None
    if made_from != source:
        if options.resume and made_from is not None:
            raise InputError(f"the text in {options.data} is not the text that the run in {options.out} began with")
        note.unlink(missing_ok=True)
        for name, documents in parts.items():
            TokenStream.write(tokenizer, documents, folder / name)
        tokenizer.save_pretrained(folder / "tokenizer")
        write_json(note, source)
    streams = {name: TokenStream.read(folder / name) for name in parts}
    for name, stream in streams.items():
        if len(stream) and stream.tokens.max() >= len(tokenizer):
            raise InputError(f"{folder / name} is damaged: it holds tokens that the tokenizer does not have")
    return RunData(tokenizer, streams["train"], streams.get("validation"))


def _fingerprint(documents: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in documents:
        raw = text.encode("utf-8")
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()
