"""
run(variants, workers) → measured results: plans made in parallel, by this machine or by a Dask cluster.

Each plan is made in a separate process, so that a crash of one does not affect the others.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from gpuplan.models.base import Noun
from gpuplan.models.errors import PlannerError
from gpuplan.models.units import Timestamp
from gpuplan.planner.epoch import limits_of, plan_epoch
from gpuplan.planner.whatif.measures import PlanFigures, plan_figures
from gpuplan.solvers.worker import ChildOutcome, kept_server, run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

T = TypeVar("T")

ENTRY: Final = "gpuplan.planner.whatif.runner:measure_variant"

_SECONDS: Final = 120.0
_SECONDS_PER_JOB: Final = 0.01
"""Generous time for everything besides the search; a task that takes longer is taken to hang."""


@dataclass(frozen=True, slots=True)
class Variant(Generic[T]):
    """A snapshot and a policy to plan, and what is measured."""

    name: str
    """For messages of progress and failure."""
    snapshot: Snapshot
    policy: Policy
    seed: int
    measure: Callable[[Variant[Any]], T | None]
    """A function of a module: it runs in another process."""
    work: str = "planning"
    """The work in one word, for messages of failure."""


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """Result of a variant: its value, or why there is none."""

    value: T | None = None
    failure: str = ""


class WhatIf(Noun):
    """What a question was asked of; `asked_of` has the values."""

    snapshot: str
    """Fingerprint of the snapshot."""
    policy: str
    """Fingerprint of the policy."""
    epoch: Timestamp
    """The instant that all plans are for."""
    seed: int
    """Seed of the solvers."""


def asked_of(snapshot: Snapshot, policy: Policy, seed: int) -> dict[str, Any]:
    """The fields of `WhatIf`."""
    return {
        "snapshot": snapshot.fingerprint(),
        "policy": policy.fingerprint(),
        "epoch": snapshot.taken_at,
        "seed": seed,
    }


def run(
    variants: Sequence[Variant[T]], workers: Workers, ended: Callable[[str], None] = lambda _: None
) -> list[Measured[T]]:
    """Measure all variants in parallel; `ended` is called with the name of each finished one."""
    found: dict[int, Measured[T]] = {}
    for index, outcome in workers.run([_task(variant) for variant in variants]):
        found[index] = _measured(outcome, variants[index].work)
        ended(variants[index].name)
    return [found[index] for index in range(len(variants))]


def planned(variant: Variant[Any]) -> Plan:
    """Make the plan of a variant."""
    snapshot = variant.snapshot
    return plan_epoch(snapshot, variant.policy, seed=variant.seed, created_at=snapshot.taken_at)


def planned_figures(variant: Variant[Any]) -> PlanFigures:
    """Make the plan of a variant, and measure it."""
    return plan_figures(planned(variant))


def measure_variant(variant: Variant[T], _report: Callable[[object], None]) -> Measured[T]:
    """Entry point of a worker; an expected error becomes the failure."""
    try:
        return Measured(variant.measure(variant))
    except PlannerError as error:
        return Measured(failure=str(error))


def _task(variant: Variant[Any]) -> WorkerTask:
    search = limits_of(variant.policy, variant.seed).seconds
    return WorkerTask(ENTRY, (variant,), search + _SECONDS + _SECONDS_PER_JOB * len(variant.snapshot.jobs))


def _measured(outcome: ChildOutcome, work: str) -> Measured[Any]:
    """The result of a task, also if its process failed or was killed."""
    if outcome.killed:
        return Measured(failure=f"{work} did not end in time and was killed")
    if not isinstance(outcome.last, Measured) or outcome.last == Measured():
        return Measured(failure=f"{work} {outcome.failure or 'gave no answer'}")
    return outcome.last


# Workers: processes of this machine, or those of another kind.


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


class Processes:
    """Processes of this machine, a few at a time; they are killed if the caller stops iterating."""

    def __init__(self, at_a_time: int) -> None:
        self._at_a_time = at_a_time

    def run(self, tasks: Sequence[WorkerTask]) -> Iterator[tuple[int, ChildOutcome]]:
        """Yield the index and outcome of each task as it ends."""
        given_up, waiting = Event(), deque(enumerate(tasks))
        ended: SimpleQueue[tuple[int, ChildOutcome] | Exception] = SimpleQueue()

        def listen(_: object) -> None:
            if given_up.is_set():
                raise _GivenUpError

        def work() -> None:
            try:
                # Each task in a fork of one process that has loaded all libraries.
                with kept_server(), suppress(IndexError):
                    while not given_up.is_set():
                        index, task = waiting.popleft()
                        ended.put((index, run_in_child(task.entry, task.arguments, task.seconds, listen)))
            except Exception as error:  # noqa: BLE001 - raised where the outcome is waited for
                ended.put(error)

        with ThreadPoolExecutor(self._at_a_time) as threads:
            for _ in range(min(self._at_a_time, len(tasks))):
                threads.submit(work)
            try:
                for _ in tasks:
                    found = ended.get()
                    if isinstance(found, Exception):
                        raise found
                    yield found
            finally:
                given_up.set()


class _GivenUpError(Exception):
    """The caller no longer waits for the outcome."""


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
