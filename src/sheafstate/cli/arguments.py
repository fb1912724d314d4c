"""What arguments of several commands may be."""

from sheafstate.errors import InputError

__all__ = ["MOST_SEED", "MOST_THREADS", "MOST_TOKENS", "text_argument"]

MOST_SEED, MOST_THREADS, MOST_TOKENS = 2**32 - 1, 2**10, 2**31 - 1


def text_argument(value: str, name: str) -> str:
    r"""The text that a person meant, ``\n`` being a line break.

    Raises:
        InputError: it is no text in UTF-8: bytes that are none arrive as halves of surrogate pairs.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"{name} must be text in UTF-8, not {value!a}")
    return value.replace("\\n", "\n")
