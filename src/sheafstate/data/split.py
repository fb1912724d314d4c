"""Training and validation text, apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sheafstate.data.readers import END_OF_TEXT, is_dataset
from sheafstate.data.sources import load_dataset, read_documents
from sheafstate.errors import InputError

__all__ = ["Corpus", "read_corpus", "split_documents"]


@dataclass(frozen=True)
class Corpus:
    """Documents to learn from and documents to measure on; the latter may be none."""

    train: Sequence[str]
    validation: Sequence[str]


def split_documents(documents: Sequence[str], share: float) -> Corpus:
    """Keep the last ``share`` of the characters for validation.

    Several documents are parted at the border between two of them that is nearest to the share, so that no document
    lies on both sides; a single document is cut at the character ``int(length * (1 - share))``.

    Raises:
        InputError: ``share`` is not in [0, 1), or leaves nothing to train or to measure on.
    """
    if not 0 <= share < 1:
        raise InputError(f"the validation share must be at least 0 and below 1, not {share}")
    if share == 0:
        return Corpus(documents, ())
    ends = np.cumsum([len(text) for text in documents])
    cut = int(ends[-1] * (1 - share))
    if len(documents) > 1:
        border = 1 + int(np.abs(ends[:-1] - cut).argmin())
        corpus = Corpus(documents[:border], documents[border:])
    else:
        corpus = Corpus([documents[0][:cut]], [documents[0][cut:]])
    if not any(corpus.train) or not any(corpus.validation):
        raise InputError(f"a text of {ends[-1]} characters is too short for a validation share of {share}")
    return corpus


def read_corpus(
    data: str | Path,
    validation_data: str | Path | None = None,
    *,
    share: float = 0.1,
    separator: str | None = END_OF_TEXT,
    field: str = "text",
) -> Corpus:
    """Read training text, and validation text from where it is found.

    That is ``validation_data`` if it is given; else the ``validation`` split of a dataset that has one; else the last
    ``share`` of the data by position.

    Raises:
        InputError: as :func:`read_documents` and :func:`split_documents`.
    """
    train = read_documents(data, separator=separator, field=field)
    if validation_data is not None:
        return Corpus(train, read_documents(validation_data, separator=separator, field=field))
    if _has_validation(Path(data)):
        return Corpus(train, read_documents(data, field=field, split="validation"))
    return split_documents(train, share)


def _has_validation(path: Path) -> bool:
    if not is_dataset(path):
        return False
    dataset = load_dataset(path)
    return isinstance(dataset, dict) and "validation" in dataset
