"""What a person sees of a run: a bar on a terminal, a line now and then elsewhere; on the standard error."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import logging

__all__ = ["ProgressBar", "quiet"]

_LINES = 10  # lines of a run that is not watched on a terminal


@contextmanager
def quiet() -> Iterator[None]:
    """For as long as the context lasts, switch off the bars that ``transformers`` draws for every file it writes.

    Nor does a thread print a traceback that cannot write its log: the next call of TensorBoard raises the same error.
    """
    drew, told = logging.is_progress_bar_enabled(), threading.excepthook
    logging.disable_progress_bar()
    threading.excepthook = lambda fault: None if issubclass(fault.exc_type, OSError) else told(fault)
    try:
        yield
    finally:
        threading.excepthook = told
        if drew:
            logging.enable_progress_bar()


class ProgressBar(TrainerCallback):
    """Steps, training loss and validation figures of the first process.

    Use it as a context, so that the terminal is itself again after an error.
    """

    def __init__(self, *, enabled: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=not enabled)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=self.console.quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("training", total=None, figures="")
        self.latest: dict[str, float] = {}

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Show the bar."""
        if state.is_world_process_zero:
            self.bar.update(self.task, total=state.max_steps, completed=state.global_step)
            self.bar.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the latest figures."""
        if not state.is_world_process_zero:
            return
        shown = {"loss": "loss", "eval_nats_per_token": "val", "eval_bits_per_byte": "bits/byte"}
        news = {shown[name]: value for name, value in (logs or {}).items() if name in shown}
        self.latest |= news
        figures = "  ".join(f"{name} {value:.3f}" for name, value in self.latest.items())
        self.bar.update(self.task, figures=figures)
        every = max(1, state.max_steps // _LINES)
        due = "val" in news or state.global_step % every < args.logging_steps
        if news and due and not self.console.is_terminal:
            self.console.print(f"step {state.global_step}/{state.max_steps}  {figures}", highlight=False)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the bar as it stands."""
        self.bar.stop()
