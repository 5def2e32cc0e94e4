"""
Engines that make many plans: processes of this machine, or the workers of a Dask cluster.

Each plan is made in a separate process, so that a crash of one does not affect the others.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from gpuplan.solvers.worker import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.solvers.worker import ChildOutcome


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """A call of `entry(*arguments, report)`; its return value is the result."""

    entry: str
    """Module and function: `package.module:function`."""
    arguments: tuple[Any, ...]
    seconds: float
    """Time limit after which the process is killed."""


class Workers(Protocol):
    """Runs tasks in parallel."""

    def run(self, tasks: Sequence[WorkerTask]) -> Iterator[tuple[int, ChildOutcome]]:
        """Yield the index and outcome of each task as it ends."""


def run_all_tasks(
    engine: Workers, tasks: Sequence[WorkerTask], names: Sequence[str], ended: Callable[[str], None]
) -> list[ChildOutcome]:
    """Run all tasks and return their outcomes in order; `ended` is called with each name as the task ends."""
    outcomes: dict[int, ChildOutcome] = {}
    for index, outcome in engine.run(tasks):
        outcomes[index] = outcome
        ended(names[index])
    return [outcomes[index] for index in range(len(tasks))]


class Processes:
    """Processes of this machine, a few at a time; they are killed if the caller stops iterating."""

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time

    def run(self, tasks: Sequence[WorkerTask]) -> Iterator[tuple[int, ChildOutcome]]:
        """Yield the index and outcome of each task as it ends."""
        given_up = Event()

        def listen(_: object) -> None:
            if given_up.is_set():
                raise _GivenUpError

        with ThreadPoolExecutor(self._at_a_time) as threads:
            index_of = {
                threads.submit(run_in_child, task.entry, task.arguments, task.seconds, listen): index
                for index, task in enumerate(tasks)
            }
            try:
                for ended in as_completed(index_of):
                    yield index_of[ended], ended.result()
            finally:
                given_up.set()
                threads.shutdown(cancel_futures=True)


class _GivenUpError(Exception):
    """The caller no longer waits for the outcome."""


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
