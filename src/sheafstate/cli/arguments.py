"""What arguments of several commands may be."""

from pathlib import Path

from sheafstate.errors import InputError

__all__ = ["CHECKPOINT", "MOST_SEED", "MOST_THREADS", "MOST_TOKENS", "PACKAGED", "text_argument"]

PACKAGED = Path("novels")
"""The packaged model (:data:`sheafstate.evaluation.PACKAGED_MODELS`)."""
CHECKPOINT = "Folder of a checkpoint, or novels: the small model that is packaged."

MOST_SEED, MOST_THREADS, MOST_TOKENS = 2**32 - 1, 2**10, 2**31 - 1


def text_argument(value: str, name: str) -> str:
    r"""The text that a person meant, ``\n`` being a line break.

    Raises:
        InputError: it is no text in UTF-8: bytes that are none arrive as halves of surrogate pairs.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{name} must be text in UTF-8, not {value!a}")
    return value.replace("\\n", "\n")
