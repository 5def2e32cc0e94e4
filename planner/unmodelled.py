"""What a job may ask for in a document that this version does not plan yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.models.job import Job


def not_modelled(job: Job) -> str | None:
    """What the job asks for that no plan of this version provides, in words; None if it can be planned."""
    if job.request.mig:
        profiles = ", ".join(sorted(job.request.mig))
        return f"asks for MIG instances ({profiles}), which this version does not plan yet"
    level = job.locality.required
    # A single replica is on one node and so in one domain of every level.
    if level is not None and job.gang.maximum > 1:
        domain = level.value.replace("_", " ")
        return f"requires all replicas in one {domain}, which this version does not plan yet"
    return None
