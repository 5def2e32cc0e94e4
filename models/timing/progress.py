"""Progress: the work of a job that a checkpoint saved, and the loss when the job stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.job import Job, Progress
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Running

_MAX_DOUBLINGS: Final = 13
"""Limit on doublings by age."""


def working_since(running: Running) -> datetime:
    """Time at which a running job starts to work on its current places, after any recovery."""
    return running.started_at if running.resumed_at is None else running.resumed_at


def recovering_seconds(job: Job, now: datetime) -> int:
    """Seconds until a running job has resumed from its last checkpoint."""
    running = job.running
    return 0 if running is None else _seconds(working_since(running), max(now, running.started_at))


def unsaved_seconds(job: Job, now: datetime) -> int:
    """Seconds that a running job has worked since its last checkpoint."""
    running = job.running
    if running is None:
        return 0
    since = working_since(running)
    return _seconds(now, max(since, running.last_checkpoint_at or since))


def running_speed_milli(job: Job, nodes: Mapping[str, Node]) -> int:
    """
    Speed of a running job at its places, in thousandths of that on its fastest GPU model, at least 1.

    The slowest GPU model that it runs on counts. The number of replicas does not: plans expect the same
    duration for every size. `nodes` is by name.
    """
    if not job.gpu_models:
        return MILLI  # it is as fast on all
    replicas = job.running.replicas if job.running else ()
    found = (nodes.get(replica.node) for replica in replicas if replica.gpus)
    models = {node.gpu_model for node in found if node and node.gpu_model}
    return max(1, min(map(job.speed_milli, models or (None,))))


def served_milli(job: Job, now: datetime) -> int:
    """
    Thousandths of GPUs times seconds that a job has held, including lost work.

    For a running job that was resized, `served` covers the time up to the resize.
    """
    progress, running = job.progress, job.running
    before = _served_before(job)
    if running is None:
        return before
    resized_at = running.resized_at if progress is not None else None
    since = max(running.started_at, resized_at or running.started_at)
    return before + sum(replica.quota_milli for replica in running.replicas) * _seconds(now, since)


def _served_before(job: Job) -> int:
    """The same up to its last start or resize."""
    progress = job.progress
    if progress is None:
        return 0
    if progress.served_milli is not None:
        return progress.served_milli
    return progress.completed_milli * job.request.total_gpu_milli * job.gang.maximum // MILLI


def unserved_seconds(job: Job, now: datetime) -> int:
    """
    Seconds from its submission, until now or until it started, in which a job had no places; at least 0.

    Service counts as if the job had always been at full size. For an elastic job that is the least time in
    which it can have had this service: so no job is taken to have waited less than it has.
    """
    running, full = job.running, job.request.total_gpu_milli * job.gang.maximum
    until = now if running is None else running.started_at
    waited = _seconds(until, job.submitted_at)
    if job.progress is None:
        return waited
    if not full:
        return max(0, waited - job.progress.completed_milli // MILLI)
    served = _served_before(job)
    if running is not None and running.resized_at is not None:
        # The service up to a resize contains some of the present run.
        served -= full * _seconds(running.resized_at, until)
    return max(0, waited - max(0, served) // full)


def age_in_doublings(job: Job, doubling: int, now: datetime) -> float:
    """
    Time without places over `doubling` seconds, at most 13: so often the weight of a job has doubled.

    A stop does not make a job worth more, and a running job keeps its age at its start.
    """
    return min(_MAX_DOUBLINGS, unserved_seconds(job, now) / doubling)


def job_after_stop(job: Job, speed_milli: int, now: datetime) -> Job:
    """
    The job as pending, after it ran at a speed and was stopped: with its saved progress and no promise.

    Its last checkpoint saved all work up to then. A job that does not run is returned unchanged. A resize is
    also a stop, from which the job resumes at once.
    """
    running, progress = job.running, job.progress or Progress()
    if running is None:
        return job
    saved_at = running.last_checkpoint_at
    if saved_at is not None and (saved := _seconds(saved_at, working_since(running))):
        completed = progress.completed_milli + speed_milli * saved
        progress = progress.model_copy(update={"completed_milli": completed, "last_checkpoint_at": saved_at})
    progress = progress.model_copy(update={"served_milli": served_milli(job, now)})
    return job.model_copy(update={"running": None, "promise": None, "progress": progress})


def _seconds(later: datetime, earlier: datetime) -> int:
    return max(0, int((later - earlier).total_seconds()))
