"""The model type ``sheafstate`` of lm-evaluation-harness, and a run of its tasks; the only file that knows lm_eval.

lm_eval looks for no plugins, so that its own command does not find the type. ``python -m sheafstate.evaluation`` is
that command with the type registered; ``sheafstate evaluate --task`` is a short way to the usual ones.

What differs from lm_eval's type ``hf``:

- A text of any length is read to its end, with the state carried over; nothing is cut off at the left.
- The mark that stands before a text in training is put before every text. ``add_bos_token=False`` leaves it away from
  texts that are not empty, as ``hf`` does for tokenizers that add none.
- A checkpoint is loaded as everywhere in the package: offline, from safetensors, running none of its code.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from sheafstate.data.tokenizers import put_mark_before
from sheafstate.errors import InputError
from sheafstate.evaluation.checkpoint import load_checkpoint
from sheafstate.evaluation.likelihood import carries_state, log_likelihoods
from sheafstate.evaluation.tasks import TaskConfigs

try:
    import lm_eval
    from lm_eval.api.group import AggMetricConfig, Group
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "lm_eval":
        raise
    raise InputError("tasks need lm_eval, which is not installed: pip install 'sheafstate[evaluation]'") from error

__all__ = ["SheafStateLM", "harness_version", "main", "run_task"]

UNBOUNDED = 1 << 30
"""More tokens than any text has."""

CHUNK = 1024
"""Tokens read at a time, where a text is read for its own likelihood."""

BOOTSTRAPS = 1000

Progress = Callable[[int, int], None]
"""Takes how many requests of how many are answered."""


@register_model("sheafstate")
class SheafStateLM(HFLM):
    """A checkpoint as lm_eval asks it questions.

    Args:
        pretrained: folder of a checkpoint, of a Sheaf-State model or any other causal one.
        batch_size: requests computed at a time, or ``auto``. It does not change the figures.
        max_batch_size: the most that ``auto`` tries.
        device: ``cpu``, ``cuda`` or ``cuda:N``; CUDA by default, and the CPU where there is none.
        max_length: tokens that are read at the most, the last ones; by default all, for a model with a state.
        add_bos_token: put the mark before every text.
        progress: told how far a list of requests has come; draws instead of lm_eval's own bars.

    Raises:
        InputError: the folder holds no checkpoint that can be used.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        batch_size: int | str = 1,
        max_batch_size: int = 64,
        device: str | None = None,
        max_length: int | None = None,
        add_bos_token: bool = True,
        progress: Progress | None = None,
    ) -> None:
        model, tokenizer = load_checkpoint(pretrained, device=_present(device))
        if add_bos_token:
            put_mark_before(tokenizer)
        with _errors_only(HFLM.__module__):  # it warns of a model that is given to it instead of a name
            super().__init__(
                pretrained=model,
                tokenizer=tokenizer,
                backend="causal",
                max_length=max_length,
                batch_size=batch_size,
                max_batch_size=max_batch_size,
                add_bos_token=add_bos_token,
            )
        self.folder = pretrained
        self.progress = progress
        self._answered, self._asked = 0, 0

    @property
    def max_length(self) -> int:
        """Tokens that are read at the most."""
        return self._max_length or (UNBOUNDED if carries_state(self.model) else super().max_length)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of whole texts."""
        texts = [request.args[0] for request in requests]
        rows = self.batch_size if isinstance(self.batch_size, int) else self.max_batch_size
        found: list[float] = []
        for start in range(0, len(texts), rows):
            chunk = min(CHUNK, self.max_length)
            found += log_likelihoods(
                self.model, self.tokenizer, texts[start : start + rows], context=chunk, batch_size=rows
            )
            self._tell(len(found), len(texts))
        for text, value in zip(texts, found, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), value)
        return found

    def get_model_info(self) -> dict[str, Any]:
        """What the results say of the model; nobody is asked over the network."""
        return {"model_num_parameters": self.model.num_parameters(), "model_dtype": self.model.dtype}

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        override_bs: int | None = None,
    ) -> list[tuple[float, bool]]:
        self._answered, self._asked = 0, len(requests)
        found = super()._loglikelihood_tokens(requests, disable_tqdm or self.progress is not None, override_bs)
        self._tell(len(requests), len(requests))
        if not torch.tensor([value for value, _ in found]).isfinite().all():
            raise InputError(f"the predictions of the model in {self.folder} are not finite numbers")
        return found

    def _model_call(
        self, inps: torch.Tensor, attn_mask: torch.Tensor | None = None, labels: torch.Tensor | None = None
    ) -> torch.Tensor:
        with torch.no_grad():
            logits = self.model(inps, use_cache=False).logits
        self._tell(min(self._answered + len(inps), self._asked), self._asked)
        return logits

    def _detect_batch_size(self, requests: Sequence | None = None, pos: int = 0) -> int:
        # without requests, the longest text that a model reads is tried, and here there is none
        longest = [(None, [self.prefix_token_id] * min(CHUNK, self.max_length), [self.prefix_token_id])]
        return super()._detect_batch_size(requests or longest, pos if requests else 0)

    def _tell(self, answered: int, asked: int) -> None:
        self._answered, self._asked = answered, asked
        if self.progress is not None:
            self.progress(answered, asked)


def _present(device: str | None) -> str:
    """The device, or the CPU if it is a CUDA device and there is none: lm_eval asks for CUDA unless told otherwise."""
    wanted = device or "cuda"
    return wanted if torch.cuda.is_available() or not wanted.startswith("cuda") else "cpu"


def run_task(
    name: str, lm: LM, *, configs: TaskConfigs | None = None, limit: int | None = None, seed: int = 0
) -> dict[str, Any]:
    """Put a model to a test.

    Args:
        name: of the test; without ``configs`` one that lm_eval knows.
        lm: the model, ours or any that lm_eval has.
        configs: the tasks that the test is made of; their figures are averaged.
        limit: examples of each task at the most.
        seed: for tasks that draw examples.

    Returns:
        ``{"results": {name: {metric: value}}, "subtasks": {name: {metric: value}}, "examples": n}``.

    Raises:
        InputError: there is no such task, or its data cannot be had.
    """
    set_seed(seed)
    os.environ.setdefault("DISABLE_MULTIPROC", "1")  # lm_eval would start a process a core for standard errors
    with _quiet():
        loaded = TaskManager(include_defaults=False).load(_build(name, configs)) if configs else _look_up(name)
        for task in loaded["tasks"].values():
            task.set_fewshot_seed(seed=seed)
        found: Any = evaluate(lm, loaded, limit=limit, bootstrap_iters=BOOTSTRAPS, log_samples=False)
    groups = {key: _figures(value) for key, value in found.get("groups", {}).items()}
    tasks = {key: _figures(value) for key, value in found["results"].items() if key not in groups}
    return {
        "results": groups or tasks,
        "subtasks": tasks if groups else {},
        "examples": sum(count["effective"] for count in found["n-samples"].values()),
    }


def harness_version() -> str:
    """The version of lm_eval."""
    return lm_eval.__version__


def _build(name: str, configs: TaskConfigs) -> ConfigurableTask | Group:
    tasks = [ConfigurableTask(config=config) for config in configs.values()]
    if list(configs) == [name]:
        return tasks[0]
    metrics = [metric["metric"] for metric in next(iter(configs.values()))["metric_list"]]
    group = Group(name, aggregate_metric_list=[AggMetricConfig(metric, weight_by_size=False) for metric in metrics])
    for task in tasks:
        group.add(task)
    return group


def _look_up(name: str) -> Any:
    """A task that lm_eval knows, or one described in a file."""
    is_file = Path(name).is_file()
    manager = TaskManager(include_defaults=not is_file)  # reading all its thousands of tasks takes seconds
    if name not in manager.all_tasks and not is_file:
        raise InputError(f"lm_eval knows no task {name!r}: python -m sheafstate.evaluation ls tasks lists them")
    try:
        return manager.load([name])
    except Exception as error:  # hubs, networks, caches and scripts have no common class
        gist = " ".join(str(error).split())[:300]
        raise InputError(f"the task {name} cannot be loaded, as its data are not here: {gist}") from error


def _figures(found: dict[str, Any]) -> dict[str, float]:
    """The figures of a task: ``acc,none`` is ``acc`` without a filter."""
    named = ((key.removesuffix(",none"), value) for key, value in found.items() if "," in key)
    return {key: float(value) for key, value in named if isinstance(value, int | float)}


@contextlib.contextmanager
def _errors_only(logger: str) -> Iterator[None]:
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep lm_eval from printing, and from drawing a bar for every task; errors are raised all the same."""
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        stack.enter_context(_errors_only("lm_eval"))
        yield


def main() -> None:
    """lm_eval's command line, with the model type ``sheafstate``."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
