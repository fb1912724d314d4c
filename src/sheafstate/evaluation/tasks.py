"""Tests that lm-evaluation-harness runs from files on this machine, and what other models are known to reach.

BLiMP: of two sentences, one of them wrong, the right one must be the likelier; each is read from the mark that stands
before a text. The figure is the mean over the paradigms of the share that is right. Warstadt et al. 2020.

LAMBADA: the last word of a passage must be the likeliest continuation (``acc``: every token of it is the likeliest);
``perplexity`` is exp of the mean negative log-likelihood of the word. Paperno et al. 2016, passages as OpenAI cut them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheafstate.data.task_files import as_dataset, read_pairs, read_passages, task_file

__all__ = ["OFFLINE", "OfflineTask", "TaskConfigs"]

TaskConfigs = dict[str, dict[str, Any]]
"""Name → configuration, as lm_eval's ``ConfigurableTask`` takes it."""

_SPLIT = "test"


@dataclass(frozen=True)
class OfflineTask:
    """A test whose file somebody has.

    Attributes:
        file: the name by which the file is known; a folder that holds it will do.
        metrics: what is measured, the main figure first.
        read: the configurations of the tasks of a file; several make a group.
        peers: name of a model → its published figures.
        source: where these are from.
    """

    file: str
    metrics: tuple[str, ...]
    read: Callable[[Path], TaskConfigs]
    peers: dict[str, dict[str, float]]
    source: str

    def configs(self, data: str | Path) -> TaskConfigs:
        """The configurations of the tasks of a file.

        Raises:
            InputError: there is no such file, or it is of another form.
        """
        return self.read(task_file(data, self.file))


def _task(name: str, rows: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {
        "task": name,
        "custom_dataset": lambda **_: {_SPLIT: as_dataset(rows)},
        "test_split": _SPLIT,
        "num_fewshot": 0,
        "metadata": {"version": 1.0},
    } | fields


def _blimp(path: Path) -> TaskConfigs:
    """A task a paradigm. The choices follow the mark directly: no space is put before them."""
    choice = {
        "output_type": "multiple_choice",
        "doc_to_text": "",
        "doc_to_target": 0,
        "doc_to_choice": "choices",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    tasks = {f"blimp_{uid}": rows for uid, rows in read_pairs(path).items()}
    return {
        name: _task(name, [{"choices": [row["good"], row["bad"]]} for row in rows], **choice)
        for name, rows in tasks.items()
    }


def _lambada(path: Path) -> TaskConfigs:
    rows = read_passages(path)
    task = _task(
        "lambada",
        rows,
        output_type="loglikelihood",
        doc_to_text="given",
        doc_to_target="target",
        metric_list=[
            {"metric": "acc", "aggregation": "mean", "higher_is_better": True},
            {"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False},
        ],
    )
    return {"lambada": task}


OFFLINE: dict[str, OfflineTask] = {
    "blimp": OfflineTask(
        file="blimp.jsonl",
        metrics=("acc",),
        read=_blimp,
        peers={
            "5-gram": {"acc": 0.612},
            "LSTM": {"acc": 0.698},
            "Transformer-XL": {"acc": 0.696},
            "GPT-2": {"acc": 0.830},
        },
        source="Warstadt et al. 2020, BLiMP",
    ),
    "lambada": OfflineTask(
        file="lambada_openai_test.jsonl",
        metrics=("acc", "perplexity"),
        read=_lambada,
        peers={"Pythia-70M": {"acc": 0.185, "perplexity": 142.4}},
        source="Biderman et al. 2023, Pythia",
    ),
}
"""Name → test."""
