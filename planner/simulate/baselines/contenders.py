"""Contender: one job as a baseline sees it, told from a snapshot and from what the job has been given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.timing.durations import Durations
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Contender:
    """A job that runs, or waits and may start."""

    job: Job
    gpu_milli: int
    """Thousandths of GPUs it holds, or asks for at full size."""
    whole: int
    """Seconds it is expected to take, all of it, on its fastest GPU model."""
    left: int
    """Seconds it is expected to go on, or to take if it starts now on its fastest GPU model."""
    attained: int
    """Thousandths of GPUs times seconds that it has been given so far."""
    age: int
    """Seconds since it was submitted."""
    seconds: Callable[[str | None], int]
    """Seconds a waiting job takes if it starts on a GPU model."""

    @property
    def name(self) -> str:
        """Of its job."""
        return self.job.name

    @property
    def running(self) -> bool:
        """True if it runs."""
        return self.job.running is not None

    @property
    def first_come(self) -> tuple[datetime, str]:
        """When it came, and its name among those that came at once."""
        return self.job.submitted_at, self.job.name

    @property
    def arrival(self) -> tuple[bool, datetime, str]:
        """Among equals those that run come first, then those that came first."""
        return not self.running, *self.first_come


def contenders(snapshot: Snapshot, policy: Policy, attained: Mapping[str, int]) -> tuple[Contender, ...]:
    """The jobs of a snapshot that are not held, first come first; `attained` is by job, 0 if left out."""
    durations = Durations(snapshot, policy)
    found = (
        _contender(job, snapshot, durations, attained.get(job.name, 0))
        for job in snapshot.jobs
        if job.running is not None or not job.held
    )
    return tuple(sorted(found, key=lambda each: each.first_come))


def _contender(job: Job, snapshot: Snapshot, durations: Durations, attained: int) -> Contender:
    def seconds(gpu_model: str | None) -> int:
        return max(1, durations.seconds(job, gpu_model))

    placed = job.placement
    milli = job.request.total_gpu_milli * job.gang.maximum if placed is None else placed.quota_milli
    return Contender(
        job,
        gpu_milli=milli,
        whole=durations.expected(job).seconds,
        left=durations.remaining(job) if job.running else seconds(None),
        attained=attained,
        age=job.waited(snapshot.taken_at),
        seconds=seconds,
    )


def may_stop(contender: Contender) -> bool:
    """True if its user lets it be stopped."""
    return contender.job.preemptible


def turn_is_over(contender: Contender) -> bool:
    """
    True if it may be stopped, and has saved its state since it last started.

    Jobs that take turns would else lose in each turn all that they did.
    """
    running = contender.job.running
    return may_stop(contender) and running is not None and running.last_checkpoint_at is not None


def gpus_of(contender: Contender) -> float:
    """GPUs that a job counts for, at least a thousandth, so that jobs without GPUs have an order too."""
    return max(1, contender.gpu_milli) / MILLI
