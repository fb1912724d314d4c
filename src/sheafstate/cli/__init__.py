"""The command line: ``sheafstate COMMAND`` and, the same, ``python -m sheafstate COMMAND``.

Every command is one function ``<name>_command`` in its own file ``cli/<name>.py``; it imports what is heavy inside
the function, so that ``--help`` stays fast, and joins ``COMMANDS`` below with one line. ``main`` turns whatever a
person can mend into one sentence on the standard error and a status that is not 0.
"""

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from sheafstate import __version__
from sheafstate.cli.bench import bench_command
from sheafstate.cli.compare import compare_command
from sheafstate.cli.demo import demo_command
from sheafstate.cli.estimate import estimate_command
from sheafstate.cli.evaluate import evaluate_command
from sheafstate.cli.export import export_command
from sheafstate.cli.generate import generate_command
from sheafstate.cli.import_llama import import_llama_command
from sheafstate.cli.inspect import inspect_command
from sheafstate.cli.report import report_command
from sheafstate.cli.simulate import simulate_command
from sheafstate.cli.train import train_command

__all__ = ["app", "main"]

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo_command,
    "simulate": simulate_command,
    "train": train_command,
    "generate": generate_command,
    "evaluate": evaluate_command,
    "estimate": estimate_command,
    "inspect": inspect_command,
    "bench": bench_command,
    "compare": compare_command,
    "report": report_command,
    "export": export_command,
    "import-llama": import_llama_command,
}
"""Name on the command line → function, in the order in which ``--help`` lists them."""

TRACEBACK_VARIABLE = "SHEAFSTATE_TRACEBACK"
"""Set to 1 in the environment, errors end in Python's traceback instead of a sentence."""

LONGEST = 900
"""Characters of a sentence at the most."""

STATUS_ERROR = 1
STATUS_INTERRUPTED = 130

app = typer.Typer(
    name="sheafstate",
    help="Sheaf-State language models: context as a learned sparse site of typed patches.",
    rich_markup_mode="rich",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sheafstate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Sheaf-State language models: context as a learned sparse site of typed patches."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def describe(error: Exception) -> tuple[str, int]:
    """One sentence for ``error``, and the exit status that goes with it.

    The parser's own errors are recognised by their ``format_message``: typer carries its parser inside the package
    in some versions and takes it from click in others, so there is no one class to name.
    """
    if hasattr(error, "format_message"):
        sentence, status = error.format_message(), getattr(error, "exit_code", STATUS_ERROR)
    elif isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename is not None else ""
        sentence, status = f"{place}{error.strerror}", STATUS_ERROR
    elif isinstance(error, MemoryError):
        sentence, status = f"not enough memory ({error})" if str(error) else "not enough memory", STATUS_ERROR
    elif isinstance(error, ValueError) and str(error):
        sentence, status = str(error), STATUS_ERROR
    else:
        kind = type(error).__name__
        sentence = f"unexpected {kind}: {error} (set {TRACEBACK_VARIABLE}=1 to see where)"
        status = STATUS_ERROR
    return _shown(" ".join(sentence.split())), status


def _shown(sentence: str) -> str:
    """The sentence as a terminal can show it: no control characters, and only the ends of a huge value."""
    sentence = "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)
    if len(sentence) <= LONGEST:
        return sentence
    return f"{sentence[: 2 * LONGEST // 3]} … {sentence[-LONGEST // 3 :]}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its status.

    Args:
        arguments: what follows the program's name; the process's own by default.

    Raises:
        SystemExit: always; 0 when all went well, 2 for a command line that cannot be read, 130 after Ctrl-C, else 1.
    """
    try:
        status = app(arguments, prog_name="sheafstate", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        sys.exit(STATUS_INTERRUPTED)
    except BrokenPipeError:
        # The reader (say, `head`) has gone; Python's last flush of the standard output would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(STATUS_ERROR)
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1":
            raise
        sentence, status = describe(error)
        print(f"error: {sentence}", file=sys.stderr)
        sys.exit(status)
    sys.exit(status if isinstance(status, int) else 0)
