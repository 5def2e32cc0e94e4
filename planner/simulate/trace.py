"""Trace: everything that happens in a simulation whatever is planned, and how the world behaves."""

from __future__ import annotations

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

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.traces.arrivals import Arrival
    from gpuplan.planner.sources.traces.outages import Outage

CHECKPOINT_EVERY: Final = 1800
"""Seconds between two checkpoints of a job, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Physics:
    """How jobs behave that are disturbed: the same in every run, whatever its policy believes."""

    checkpoint_every: int = CHECKPOINT_EVERY
    """Seconds of work after which a job has saved its state again; 0 is never."""
    checkpoint: int = 60
    """Seconds to save the state of a job that is stopped or moved, unless the job says otherwise."""
    restart: int = 300
    """Seconds to bring it back from its last checkpoint, unless the job says otherwise."""

    @staticmethod
    def of(policy: Policy, checkpoint_every: int) -> Physics:
        """Delays as a policy states them."""
        rules = policy.disruption
        return Physics(checkpoint_every, rules.checkpoint, rules.restart)

    def recovery_of(self, job: Job) -> int:
        """Seconds before a job that was stopped works again when it starts."""
        checkpoint = self.checkpoint if job.checkpoint_duration is None else job.checkpoint_duration
        restart = self.restart if job.restart_duration is None else job.restart_duration
        return checkpoint + restart


@dataclass(frozen=True, slots=True)
class Estimates:
    """How far what a planner is told of durations is from the truth."""

    factor: float | None = 1.0
    """Wrong by up to this factor either way; 1 is the truth, None tells nothing."""
    seed: int = 0

    def of(self, job: str, duration: int) -> int | None:
        """What is told of a job that takes so many seconds; the same in every run."""
        if self.factor is None:
            return None
        # A seed that is text, and `random()` alone, give the same on every machine.
        chance = random.Random(f"{self.seed} {job}").random()  # noqa: S311 - a workload, no secret
        wrong_by: float = self.factor ** (2 * chance - 1)
        return max(1, round(duration * wrong_by))


@dataclass(frozen=True, slots=True)
class Coming:
    """A job that is still to be submitted, as its user will submit it, with its true duration."""

    job: Job
    duration: int


@dataclass(frozen=True)
class Trace:
    """What a simulation begins with, and what comes by and by."""

    start: Snapshot
    coming: tuple[Coming, ...] = ()
    """By time and name, from the start on."""
    outages: tuple[Outage, ...] = ()
    """By time."""
    physics: Physics = Physics()
    added_queues: tuple[str, ...] = ()
    """Queues of arriving jobs that the snapshot does not have: without a quota."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a trace is replayed, and how fast."""

    skip: int = 0
    """Seconds of the trace that are left out at its beginning."""
    seconds: int | None = None
    """Jobs come for so long in the simulation; None is until none is left."""
    load_milli: int = MILLI
    """Jobs come so many times as fast, in thousandths."""

    def enters(self, arrival: Arrival) -> int | None:
        """Second of the simulation in which a job comes; None if it does not."""
        if arrival.after < self.skip:
            return None
        second = (arrival.after - self.skip) * MILLI // self.load_milli
        return second if self.seconds is None or second <= self.seconds else None


def make_trace(
    snapshot: Snapshot,
    arrivals: Iterable[Arrival] = (),
    *,
    window: Window | None = None,
    estimates: Estimates | None = None,
    outages: tuple[Outage, ...] = (),
    physics: Physics | None = None,
    place: str = "arrivals",
) -> Trace:
    """
    Put together what is replayed; `place` is where the arrivals come from, for messages.

    Raises
    ------
    BadInputError
        With all that makes arrivals and snapshot contradict each other.
    """
    window, estimates = window or Window(), estimates or Estimates()
    coming = tuple(
        Coming(_submitted(arrival, snapshot, second, estimates), arrival.duration)
        for arrival in arrivals
        if (second := window.enters(arrival)) is not None
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


def _problems(start: Snapshot, coming: tuple[Coming, ...], place: str) -> tuple[InputProblem, ...]:
    """What would be wrong with a snapshot in which all jobs have been submitted at once."""
    jobs = tuple(each.job.model_copy(update={"submitted_at": start.taken_at}) for each in coming)
    whole = start.model_copy(update={"jobs": (*start.jobs, *jobs)})
    return tuple(
        InputProblem(place, each.message)
        for each in inconsistencies(whole)
        # The world may be damaged, but no job may come that was never possible.
        if each.damage is None or (each.location[0] == "jobs" and int(each.location[1]) >= len(start.jobs))
    )
