"""Work that a plan loses: the unsaved work of the jobs that it stops, shrinks or migrates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.progress import unsaved_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.plan.actions import Action


def lost_gpu_hours(actions: Iterable[Action]) -> float:
    """Sum the GPU-hours that actions lose, as stated in their reasons; rounded to a thousandth."""
    return round(sum(float(action.reason.numbers.get("lost_gpu_hours", 0)) for action in actions), 3)


def unsaved_gpu_milli_seconds(job: Job, now: datetime) -> int:
    """Return a job's unsaved work, in thousandths of GPUs times seconds; 0 for a waiting job."""
    if job.running is None:
        return 0
    return unsaved_seconds(job, now) * sum(replica.quota_milli for replica in job.running.replicas)
