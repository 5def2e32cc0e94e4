"""Contender: one job as input of a baseline, from a snapshot and its attained service."""

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
    """A running job, or a pending job that may start."""

    job: Job
    gpu_milli: int
    """Thousandths of GPUs that it holds, or requests at full size."""
    whole: int
    """Expected total duration in seconds, on its fastest GPU model."""
    left: int
    """Expected remaining seconds; of a pending job, from a start now on its fastest GPU model."""
    attained: int
    """Attained service in thousandths of GPUs times seconds."""
    age: int
    """Seconds since its submission."""
    seconds: Callable[[str | None], int]
    """Expected duration of a pending job on a GPU model."""

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    @property
    def running(self) -> bool:
        """True if the job is running."""
        return self.job.running is not None

    @property
    def first_come(self) -> tuple[datetime, str]:
        """Submission time, then name."""
        return self.job.submitted_at, self.job.name

    @property
    def arrival(self) -> tuple[bool, datetime, str]:
        """Tie-break: running jobs first, then by submission time."""
        return not self.running, *self.first_come


def contenders(snapshot: Snapshot, policy: Policy, attained: Mapping[str, int]) -> tuple[Contender, ...]:
    """Jobs of a snapshot that are not held, by submission time; jobs missing in `attained` have 0."""
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
        age=job.waiting_seconds(snapshot.taken_at),
        seconds=seconds,
    )


def is_preemptible(contender: Contender) -> bool:
    """True if the job is preemptible."""
    return contender.job.preemptible


def may_yield_turn(contender: Contender) -> bool:
    """
    True if the job is preemptible, and has a checkpoint since its last start.

    Without this condition, jobs that take turns would lose all work of each turn.
    """
    running = contender.job.running
    return is_preemptible(contender) and running is not None and running.last_checkpoint_at is not None


def counted_gpus(contender: Contender) -> float:
    """GPUs of a job, at least a thousandth, so that jobs without GPUs have an order too."""
    return max(1, contender.gpu_milli) / MILLI
