"""The error that a person can mend."""

__all__ = ["InputError"]


class InputError(ValueError):
    """Bad input, told in one sentence that names the value and what is allowed.

    The command line prints the sentence and exits with status 1; a library caller gets a ``ValueError``.
    """
