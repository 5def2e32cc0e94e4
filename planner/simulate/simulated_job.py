"""
Task: a job of the simulated world, with its true amount of work and its progress.

Work is an integer, so that rounding has no effect. One unit is a thousandth of the job's work in one second
at full size on the fastest GPU model that it may use. The speed of elastic jobs follows their scaling, or is
proportional to their replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.job import Progress
from gpuplan.models.timing.progress import served_milli
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.planner.simulate.trace import Physics


@dataclass(frozen=True, slots=True)
class RunInterval:
    """A span in which a job holds the same places."""

    begins: datetime
    """Time when it gets the places."""
    works: datetime
    """Time of its first work there, after the recovery from its checkpoint."""
    rate: int
    """Units of work per second."""
    gpu_milli: int
    gpu_model: str | None
    """The slowest GPU model that it runs on."""
    fails: datetime | None = None
    """Time at which the job fails if it still runs there; None if it does not."""


@dataclass(frozen=True, slots=True)
class IntervalOutcome:
    """Use of an ended stretch, in seconds."""

    interval: RunInterval
    until: datetime
    idle: int
    """Seconds of recovery from a checkpoint."""
    lost: int
    """Seconds of work after the last checkpoint, which was lost."""

    @property
    def seconds(self) -> int:
        """Seconds of the whole stretch."""
        return _seconds(self.until, self.interval.begins)


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """One job of the world."""

    job: Job
    """The job in snapshots for the planner."""
    need: int
    """True amount of work in units."""
    kept: int = 0
    """Units that were done and saved before the present stretch, or before its last stop."""
    interval: RunInterval | None = None
    """None while it is pending."""
    ran: bool = False
    """True if it has started before, so that a further start begins with a recovery."""
    given: int = 0
    """Service before the present stretch, in thousandths of GPUs times seconds."""

    @staticmethod
    def of(job: Job, duration: int) -> SimulatedJob:
        """A pending job with this duration in seconds at full size on its fastest GPU model."""
        return SimulatedJob(job, need=duration * MILLI)

    @property
    def begun(self) -> RunInterval:
        """The present stretch of a running job."""
        assert self.interval is not None  # noqa: S101 - for the type checker
        return self.interval

    def done(self, at: datetime) -> int:
        """Units done by a time, saved or not."""
        return self.kept if self.interval is None else self.kept + self.interval.rate * self._worked(at)

    def saved(self, at: datetime, every: int) -> int:
        """Units that survive a stop at a time, with a checkpoint every `every` seconds."""
        if self.interval is None or not every:
            return self.kept
        return self.kept + self.interval.rate * (self._worked(at) // every * every)

    def unsaved(self, at: datetime, every: int) -> int:
        """Seconds of work lost by a stop at a time, with a checkpoint every `every` seconds."""
        return self._worked(at) % every if every else self._worked(at)

    def checkpointed_at(self, at: datetime, every: int) -> datetime | None:
        """Its last checkpoint in the present stretch; None if there is none yet."""
        if self.interval is None or not every or (worked := self._worked(at)) < every:
            return None
        return self.interval.works + timedelta(seconds=worked // every * every)

    def ends(self) -> datetime:
        """Time when its work is done, in whole seconds, without further changes."""
        stretch = self.begun
        return stretch.works + timedelta(seconds=-(-max(0, self.need - self.kept) // stretch.rate))

    def attained(self, at: datetime) -> int:
        """Attained service in the simulation, lost work included, in thousandths of GPUs times seconds."""
        stretch = self.interval
        held = 0 if stretch is None else stretch.gpu_milli * max(0, _seconds(at, stretch.begins))
        return self.given + held

    def ends_at(self) -> datetime:
        """Time when it ends without further changes: its work is done, or it is killed or fails before."""
        running = self.job.running
        early = (None if running is None else running.kill_at, self.begun.fails)
        return min((self.ends(), *(each for each in early if each is not None)))

    def end_kind(self) -> JobEventKind:
        """Kind of the event at `ends_at`; a job that may be tried again is interrupted by its failure."""
        at = self.ends_at()
        if at == self.ends():
            return JobEventKind.FINISHED
        again = self.job.retry is not None and not self.job.retry.is_used_up(self.job.failures + 1)
        return JobEventKind.INTERRUPTED if at == self.begun.fails and again else JobEventKind.KILLED

    def failed(self, at: datetime, physics: Physics) -> tuple[SimulatedJob, IntervalOutcome]:
        """The job as pending after a failure, and its ended stretch."""
        task, held = self.stopped(at, physics)
        update = {"failures": task.job.failures + 1, "failed_at": at}
        return replace(task, job=task.job.model_copy(update=update)), held

    def ended(self, at: datetime) -> IntervalOutcome:
        """Its stretch, ended at a time without lost work."""
        stretch = self.begun
        idle = max(0, _seconds(min(at, stretch.works), stretch.begins))
        return IntervalOutcome(stretch, max(at, stretch.begins), idle=idle, lost=0)

    def stopped(self, at: datetime, physics: Physics) -> tuple[SimulatedJob, IntervalOutcome]:
        """The job as pending after a stop, and its ended stretch; unsaved work is lost."""
        held = self.ended(at)
        every = physics.checkpoint_every
        lost = self.unsaved(at, every)
        kept = self.saved(at, every)
        saved_at = self.checkpointed_at(at, every) or self.job.last_checkpoint_at
        update = {
            "completed_milli": kept,
            "last_checkpoint_at": saved_at if kept else None,
            "served_milli": served_milli(self.job, at),
        }
        progress = Progress().model_copy(update=update)
        job = self.job.model_copy(update={"running": None, "progress": progress})
        given = self.attained(at)
        return replace(self, job=job, kept=kept, given=given, interval=None), replace(held, lost=lost)

    def _worked(self, at: datetime) -> int:
        return max(0, _seconds(at, self.begun.works))


def run_interval(
    job: Job, replicas: tuple[Replica, ...], nodes: dict[str, Node], *, begins: datetime, delay: int
) -> RunInterval:
    """A stretch at these places, with `delay` seconds before the first work."""
    models = {model for each in replicas if each.gpus and (model := _model_of(nodes, each.node)) is not None}
    slowest = min(sorted(models), key=job.speed_milli, default=None)
    return RunInterval(
        begins=begins,
        works=begins + timedelta(seconds=delay),
        rate=max(1, job.rate_milli(slowest, len(replicas))),
        gpu_milli=sum(each.quota_milli for each in replicas),
        gpu_model=slowest,
    )


def _model_of(nodes: dict[str, Node], name: str) -> str | None:
    return nodes[name].gpu_model if name in nodes else None


def _seconds(later: datetime, earlier: datetime) -> int:
    return int((later - earlier).total_seconds())


# Events of jobs in a simulation, and totals of GPU time and cost over a span.


class JobEventKind(StrEnum):
    """Kind of an event of a job."""

    SUBMITTED = "submitted"
    STARTED = "started"
    PREEMPTED = "preempted"
    """A plan stopped the job; it is pending again."""
    INTERRUPTED = "interrupted"
    """Its node failed, a rule of health excludes its GPU, or it failed itself; it is pending again."""
    MOVED = "moved"
    RESIZED = "resized"
    FINISHED = "finished"
    KILLED = "killed"
    """It reached its kill time, or failed and is not tried again, and is removed."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job."""

    at: datetime
    kind: JobEventKind
    job: str
    held: IntervalOutcome | None = None
    """The stretch that ends with this event."""


@dataclass(frozen=True, slots=True)
class GpuTimeFlow:
    """Totals over a span: GPU time in thousandths of GPUs times seconds, and cost."""

    held: int = 0
    """GPUs held by jobs."""
    usable: int = 0
    """Healthy GPUs of nodes that are up."""
    cost: float = 0.0
    """Price of the nodes, busy or idle, in the cluster's currency."""

    def __add__(self, other: GpuTimeFlow) -> GpuTimeFlow:
        return GpuTimeFlow(self.held + other.held, self.usable + other.usable, self.cost + other.cost)


NOTHING: Final = GpuTimeFlow()
"""Totals of an empty span."""
