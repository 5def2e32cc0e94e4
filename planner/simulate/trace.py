"""Trace: the events of a simulation that do not depend on plans, and the rules of the world."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.queue import Queue
from gpuplan.models.units import MILLI
from gpuplan.models.validation.checks import inconsistencies

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.traces.arrivals import Arrival, Outage

CHECKPOINT_EVERY: Final = 1800
"""Default seconds between two checkpoints of a job."""


@dataclass(frozen=True, slots=True)
class Physics:
    """Checkpoint and restart times of the jobs; the same in every run, whatever its policy assumes."""

    checkpoint_every: int = CHECKPOINT_EVERY
    """Seconds of work between two checkpoints; 0 is never."""
    checkpoint: int = 60
    """Seconds to save the state of a job that is stopped or migrated, unless the job has its own value."""
    restart: int = 300
    """Seconds to restore a job from its last checkpoint, unless the job has its own value."""
    mean_to_failure: int = 0
    """Mean seconds of work until a replica, and with it its job, fails; 0 is never."""
    seed: int = 0
    """Of the failures."""

    @staticmethod
    def of(policy: Policy, checkpoint_every: int, *, mean_to_failure: int = 0, seed: int = 0) -> Physics:
        """The delays of a policy."""
        rules = policy.disruption
        return Physics(checkpoint_every, rules.checkpoint, rules.restart, mean_to_failure, seed)

    def failure_after(self, job: Job, works: datetime, replicas: int) -> datetime | None:
        """
        Time at which a job fails that works from a time on; None if it never does.

        The time to a failure is exponential, so that work done before does not matter. Jobs fail by
        themselves only.
        """
        if not self.mean_to_failure:
            return None
        # A text seed and `random()` give the same value on every machine.
        chance = random.Random(f"{self.seed} {job.name} {works.isoformat()}").random()  # noqa: S311
        seconds = -math.log(1 - chance) * self.mean_to_failure / replicas
        return works + timedelta(seconds=max(1, round(seconds)))

    def recovery_of(self, job: Job) -> int:
        """Seconds from the restart of a stopped job to its next work."""
        checkpoint = self.checkpoint if job.checkpoint_duration is None else job.checkpoint_duration
        restart = self.restart if job.restart_duration is None else job.restart_duration
        return checkpoint + restart


@dataclass(frozen=True, slots=True)
class Estimates:
    """Errors of the expected durations that the planner gets."""

    factor: float | None = 1.0
    """Largest error factor in both directions; 1 is exact, None gives no durations."""
    seed: int = 0

    def of(self, job: str, duration: int) -> int | None:
        """Expected duration of a job with this true duration; the same in every run."""
        if self.factor is None:
            return None
        # A text seed and `random()` give the same value on every machine.
        chance = random.Random(f"{self.seed} {job}").random()  # noqa: S311 - a workload, no secret
        wrong_by: float = self.factor ** (2 * chance - 1)
        return max(1, round(duration * wrong_by))


@dataclass(frozen=True, slots=True)
class FutureSubmission:
    """A job that will be submitted, with its true duration in seconds."""

    job: Job
    duration: int


@dataclass(frozen=True)
class Trace:
    """Initial snapshot and later events of a simulation."""

    start: Snapshot
    coming: tuple[FutureSubmission, ...] = ()
    """By time and name."""
    outages: tuple[Outage, ...] = ()
    """By time."""
    physics: Physics = Physics()
    added_queues: tuple[str, ...] = ()
    """Queues of arriving jobs that the snapshot lacks; they have no quota."""


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """Part of a trace that is replayed, and its speed."""

    skip: int = 0
    """Seconds left out at the beginning of the trace."""
    seconds: int | None = None
    """Seconds of the simulation during which jobs arrive; None is without a limit."""
    load_milli: int = MILLI
    """Factor on the arrival rate, in thousandths."""

    def arrival_second(self, arrival: Arrival) -> int | None:
        """Second of the simulation in which a job arrives; None if it is left out."""
        if arrival.after < self.skip:
            return None
        second = (arrival.after - self.skip) * MILLI // self.load_milli
        return second if self.seconds is None or second <= self.seconds else None


def make_trace(
    snapshot: Snapshot,
    arrivals: Iterable[Arrival] = (),
    *,
    window: TraceWindow | None = None,
    estimates: Estimates | None = None,
    outages: tuple[Outage, ...] = (),
    physics: Physics | None = None,
    place: str = "arrivals",
) -> Trace:
    """
    Build the trace of a replay; `place` is the source of the arrivals, for messages.

    Raises
    ------
    BadInputError
        Arrivals and snapshot contradict each other; lists all contradictions.
    """
    window, estimates = window or TraceWindow(), estimates or Estimates()
    coming = tuple(
        FutureSubmission(_submitted(arrival, snapshot, second, estimates), arrival.duration)
        for arrival in arrivals
        if (second := window.arrival_second(arrival)) is not None
    )
    known = {queue.name for queue in snapshot.queues}
    added = tuple(sorted({each.job.queue for each in coming} - known))
    start = snapshot.model_copy(
        update={"queues": (*snapshot.queues, *(Queue(name=name) for name in added))}
    ).canonical()
    if problems := _problems(start, coming, place):
        raise BadInputError(problems)
    return Trace(start, coming, outages, physics or Physics(), added)


def _submitted(arrival: Arrival, snapshot: Snapshot, second: int, estimates: Estimates) -> Job:
    return arrival.job.model_copy(
        update={
            "submitted_at": snapshot.taken_at + timedelta(seconds=second),
            "expected_duration": estimates.of(arrival.job.name, arrival.duration),
        }
    )


def _problems(start: Snapshot, coming: tuple[FutureSubmission, ...], place: str) -> tuple[InputProblem, ...]:
    """Inconsistencies of a snapshot in which all jobs are already submitted."""
    jobs = tuple(each.job.model_copy(update={"submitted_at": start.taken_at}) for each in coming)
    whole = start.model_copy(update={"jobs": (*start.jobs, *jobs)})
    return tuple(
        InputProblem(place, each.message)
        for each in inconsistencies(whole)
        # Damage in the initial snapshot is allowed, but an arriving job must be consistent.
        if each.damage is None or (each.location[0] == "jobs" and int(each.location[1]) >= len(start.jobs))
    )
