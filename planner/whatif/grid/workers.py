"""
Where many plans are made: in processes of this machine, or on the workers of a Dask cluster.

Either way each one is made in a process of its own, so that one that crashes takes no other with it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from gpuplan.solvers.worker import run_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.solvers.worker import Outcome


@dataclass(frozen=True, slots=True)
class Task:
    """A call of `entry(*arguments, report)`, whose result is what it returns."""

    entry: str
    """Module and function: `package.module:function`."""
    arguments: tuple[Any, ...]
    seconds: float
    """After which it is killed."""


class Engine(Protocol):
    """Carries out tasks beside each other."""

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield how each task went, with its index, as they end."""


def all_of(
    engine: Engine, tasks: Sequence[Task], names: Sequence[str], ended: Callable[[str], None]
) -> list[Outcome]:
    """How each of the tasks went; `ended` is told the name of each as it is done."""
    outcomes: dict[int, Outcome] = {}
    for index, outcome in engine.run(tasks):
        outcomes[index] = outcome
        ended(names[index])
    return [outcomes[index] for index in range(len(tasks))]


class Processes:
    """Processes of this machine, so many at a time; if the caller loses interest, they are killed."""

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield how each task went, with its index, as they end."""
        given_up = Event()

        def listen(_: object) -> None:
            if given_up.is_set():
                raise _GivenUpError

        with ThreadPoolExecutor(self._at_a_time) as threads:
            index_of = {
                threads.submit(run_apart, task.entry, task.arguments, task.seconds, listen): index
                for index, task in enumerate(tasks)
            }
            try:
                for ended in as_completed(index_of):
                    yield index_of[ended], ended.result()
            finally:
                given_up.set()
                threads.shutdown(cancel_futures=True)


class _GivenUpError(Exception):
    """Nobody waits for the outcome any more."""


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
