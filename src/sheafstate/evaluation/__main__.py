"""``python -m sheafstate.evaluation``: the command ``lm_eval``, knowing the model type ``sheafstate``."""

import sys

from sheafstate.errors import InputError

if __name__ == "__main__":
    try:
        from sheafstate.evaluation.harness import main

        main()
    except InputError as error:
        sys.exit(f"error: {error}")
