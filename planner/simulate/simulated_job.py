"""
Task: a job as the world knows it, with the work it truly has to do and how far it has come.

Work is counted in whole numbers, so that nothing is lost or won by rounding: one unit is a thousandth of what
the job does in a second at full size on the fastest GPU model it may use. Elastic jobs work as fast as their
scaling says, or in proportion to their replicas.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.progress import Progress, served_milli
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.planner.simulate.trace import Physics


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a job holds the same places."""

    begins: datetime
    """When it gets them."""
    works: datetime
    """When it does its first work there: not before it has come back from its checkpoint."""
    rate: int
    """Units of work a second."""
    gpu_milli: int
    gpu_model: str | None
    """The slowest it runs on."""


@dataclass(frozen=True, slots=True)
class Held:
    """What became of a stretch: seconds, in order, without gaps."""

    stretch: Stretch
    until: datetime
    idle: int
    """Coming back from a checkpoint."""
    lost: int
    """Working for nothing: what was done after the last checkpoint was lost."""

    @property
    def seconds(self) -> int:
        """All of it."""
        return _seconds(self.until, self.stretch.begins)


@dataclass(frozen=True, slots=True)
class Task:
    """One job of the world."""

    job: Job
    """As a planner sees it."""
    need: int
    """Units of work it truly takes."""
    kept: int = 0
    """Units that were done and saved before the present stretch, or before it was stopped."""
    stretch: Stretch | None = None
    """None while it waits."""
    ran: bool = False
    """It has begun once, and so comes back from a checkpoint when it begins again."""
    given: int = 0
    """Thousandths of GPUs times seconds that it held before the present stretch."""

    @staticmethod
    def of(job: Job, duration: int) -> Task:
        """A waiting job that takes so many seconds at full size on its fastest GPU model."""
        return Task(job, need=duration * MILLI)

    @property
    def begun(self) -> Stretch:
        """The present stretch, of a job that runs."""
        assert self.stretch is not None  # noqa: S101 - for the type checker
        return self.stretch

    def done(self, at: datetime) -> int:
        """Units done by then, saved or not."""
        return self.kept if self.stretch is None else self.kept + self.stretch.rate * self._worked(at)

    def saved(self, at: datetime, every: int) -> int:
        """Units that survive if it is stopped then, a checkpoint having been made every so many seconds."""
        if self.stretch is None or not every:
            return self.kept
        return self.kept + self.stretch.rate * (self._worked(at) // every * every)

    def unsaved(self, at: datetime, every: int) -> int:
        """Seconds it worked for nothing if it is stopped then, with a checkpoint every so many seconds."""
        return self._worked(at) % every if every else self._worked(at)

    def checkpointed_at(self, at: datetime, every: int) -> datetime | None:
        """Its last checkpoint in the present stretch; None if there was none yet."""
        if self.stretch is None or not every or (worked := self._worked(at)) < every:
            return None
        return self.stretch.works + timedelta(seconds=worked // every * every)

    def ends(self) -> datetime:
        """When its work is done, in whole seconds, if nothing happens to it."""
        stretch = self.begun
        return stretch.works + timedelta(seconds=-(-max(0, self.need - self.kept) // stretch.rate))

    def attained(self, at: datetime) -> int:
        """Thousandths of GPUs times seconds that it has held in the simulation, whatever came of it."""
        stretch = self.stretch
        held = 0 if stretch is None else stretch.gpu_milli * max(0, _seconds(at, stretch.begins))
        return self.given + held

    def over_at(self) -> datetime:
        """When it is gone if nothing happens to it: its work is done, or it is killed before."""
        end, running = self.ends(), self.job.running
        return end if running is None or running.kill_at is None else min(end, running.kill_at)

    def ended(self, at: datetime) -> Held:
        """Its stretch, as one in which nothing is lost."""
        stretch = self.begun
        idle = max(0, _seconds(min(at, stretch.works), stretch.begins))
        return Held(stretch, max(at, stretch.begins), idle=idle, lost=0)

    def stopped(self, at: datetime, physics: Physics) -> tuple[Task, Held]:
        """The job as it waits again, and what became of its stretch; what it had not saved is lost."""
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
        return replace(self, job=job, kept=kept, given=given, stretch=None), replace(held, lost=lost)

    def _worked(self, at: datetime) -> int:
        return max(0, _seconds(at, self.begun.works))


def stretch_of(
    job: Job, replicas: tuple[Replica, ...], nodes: dict[str, Node], *, begins: datetime, delay: int
) -> Stretch:
    """A stretch on these places, with some seconds before it works."""
    models = {model for each in replicas if each.gpus and (model := _model_of(nodes, each.node)) is not None}
    slowest = min(sorted(models), key=job.speed_milli, default=None)
    return Stretch(
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
