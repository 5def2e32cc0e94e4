"""Points of a job on one GPU model, from its points at full size and full speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.units import MILLI
from gpuplan.models.value.job_value import points_at_size

if TYPE_CHECKING:
    from gpuplan.models.job import Job


def completion_points(full_points: int, job: Job, gpu_model: str | None, replicas: int) -> int:
    """
    Points of a job with this number of replicas on one GPU model: `w_j · completed_j`.

    Its points times its relative speed at full size, reduced to these replicas (`points_at_size`).
    """
    if full_points == 0:
        return 0
    return points_at_size(full_points * job.speed_milli(gpu_model) // MILLI, job, gpu_model, replicas)
