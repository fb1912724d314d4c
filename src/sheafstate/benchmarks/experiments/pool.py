"""Runs what is missing, several runs side by side, each in a process of its own with one thread."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sheafstate.benchmarks.experiments.plan import Plan, Run
from sheafstate.benchmarks.experiments.rates import search_rate
from sheafstate.benchmarks.experiments.records import Record, append_record, read_records
from sheafstate.errors import InputError

__all__ = ["Job", "missing", "run_missing"]

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Freed memory is kept: a step gives back and asks for the same gigabytes, and every new page costs a fault. A step
    # of 4,096 tokens takes 1.15 s instead of 1.35 s so.
    "MALLOC_MMAP_THRESHOLD_": str(2**32),
    "MALLOC_TRIM_THRESHOLD_": str(2**33),
    "MALLOC_TOP_PAD_": str(2**28),
}
"""Environment of a run."""


@dataclass(frozen=True)
class Job:
    """A run, and whether it chooses a learning rate (``tune``) or counts (``full``)."""

    run: Run
    phase: str

    def __str__(self) -> str:
        run = self.run
        return f"{self.phase} {run.task} {run.side} lr {run.learning_rate:g} seed {run.seed}"


def missing(plan: Plan, records: dict[str, Record]) -> Iterator[Job]:
    """Runs that have no record and whose learning rate is known, in the order of the plan.

    A side's short runs come first; its long runs are missing only once the short ones are there.
    """
    seen = set(records)
    for task, side, seed in plan.work():
        waiting, rate = search_rate(plan.tuning(task, side), records)
        jobs = [Job(run, "tune") for run in waiting]
        if rate is not None:
            jobs.append(Job(plan.full(task, side, rate, seed), "full"))
        for job in jobs:
            if job.run.key not in seen:
                seen.add(job.run.key)
                yield job


def run_missing(
    read: Callable[[], Plan],
    records_path: Path,
    folder: Path,
    *,
    workers: int,
    say: Callable[[str], None],
    seconds: float | None = None,
) -> int:
    """Execute what is missing and keep a record of each run; return how many were made.

    Args:
        read: gives the experiment; it is asked after each run, so that a plan can be extended while it is run.
        records_path: file of the records.
        folder: for encoded text, logs and what the Trainer writes.
        workers: runs side by side.
        say: gets a line after each run.
        seconds: after this long no further run is begun.

    Raises:
        InputError: a run failed; those beside it are finished first and kept.
    """
    begun, made = time.monotonic(), 0
    running: dict[Future[Record], Job] = {}
    failures: list[str] = []
    with ThreadPoolExecutor(workers) as pool:
        while True:
            out_of_time = seconds is not None and time.monotonic() - begun > seconds
            busy = {job.run.key for job in running.values()}
            jobs = []
            if not out_of_time and not failures:
                jobs = [job for job in missing(read(), read_records(records_path)) if job.run.key not in busy]
            for job in jobs[: workers - len(running)]:
                running[pool.submit(_in_process, job, folder)] = job
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                job = running.pop(future)
                try:
                    record = future.result()
                except InputError as error:
                    failures.append(str(error))
                    continue
                append_record(records_path, record)
                made += 1
                say(_line(job, record))
    if failures:
        raise InputError(failures[0])
    return made


def _in_process(job: Job, folder: Path) -> Record:
    log = folder / "logs" / f"{job.run.key}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as errors:
        finished = subprocess.run(
            [sys.executable, "-m", "sheafstate.benchmarks.experiments", "one", "--work", str(folder)],
            input=json.dumps(asdict(job)),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | ONE_THREAD,
            check=False,
        )
    if finished.returncode:
        raise InputError(f"the run {job.run.task} {job.run.side} failed; its log is {log}")
    record: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return record


def _line(job: Job, record: Record) -> str:
    figures = {name: round(value, 4) for name, value in record["figures"].items()} or "lost its way"
    return f"{job}: {figures}, {record['seconds']:.0f} s, {record['tokens_per_second']:,.0f} tokens/s"
