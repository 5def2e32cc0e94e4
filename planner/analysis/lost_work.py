"""Work that a plan loses: what is in no checkpoint of the jobs that it stops, shrinks or moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.progress import unsaved_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Action


def lost_gpu_hours(actions: Iterable[Action]) -> float:
    """GPU-hours that actions lose together, to a thousandth, as told in their reasons."""
    return round(sum(float(action.reason.numbers.get("lost_gpu_hours", 0)) for action in actions), 3)


def unsaved_gpu_milli_seconds(job: Job, now: datetime) -> int:
    """Work of a job that is in no checkpoint, in thousandths of GPUs times seconds; 0 of one that waits."""
    if job.running is None:
        return 0
    return unsaved_seconds(job, now) * sum(replica.quota_milli for replica in job.running.replicas)
