"""``python -m sheafstate``: the command line."""

from sheafstate.cli import main

if __name__ == "__main__":
    main()
