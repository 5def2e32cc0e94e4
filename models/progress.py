"""Progress: the work of a job that a checkpoint saved, and what is lost of it when the job stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from planner.models.base import Noun
from planner.models.units import Timestamp, WorkTime

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from planner.models.cluster import Node
    from planner.models.job import Job, Running


class Progress(Noun):
    """What a job keeps of the time before it was last stopped or resized."""

    completed_milli: WorkTime = Field(default=0, alias="completed")
    """
    Work that its last checkpoint saved, as a duration on the fastest of its GPU models, such as `9h30m`.

    What is left of the job is its expected duration less this.
    """
    last_checkpoint_at: Timestamp | None = None
    """When that was saved; absent means that nothing was."""


def works_since(running: Running) -> datetime:
    """When a running job does its first work where it runs: once it is back from its last checkpoint."""
    return running.started_at if running.resumed_at is None else running.resumed_at


def recovering_seconds(job: Job, now: datetime) -> int:
    """Seconds until a running job is back from its last checkpoint."""
    running = job.running
    return 0 if running is None else _seconds(works_since(running), max(now, running.started_at))


def unsaved_seconds(job: Job, now: datetime) -> int:
    """Seconds that a running job has worked since its last checkpoint."""
    running = job.running
    if running is None:
        return 0
    since = works_since(running)
    return _seconds(now, max(since, running.last_checkpoint_at or since))


def pace(job: Job, nodes: Mapping[str, Node]) -> int:
    """
    Speed of a running job where it is, in thousandths of that at full size on its fastest GPU model.

    At least 1; the slowest GPU model that it runs on counts (`Job.rate_milli`). Nodes by name.
    """
    replicas = job.running.replicas if job.running else ()
    found = (nodes.get(replica.node) for replica in replicas if replica.gpus)
    models = {node.gpu_model for node in found if node and node.gpu_model}
    return max(1, min(job.rate_milli(model, len(replicas)) for model in models or (None,)))


def stopped(job: Job, speed_milli: int) -> Job:
    """
    The job as it waits again, stopped where it ran at a speed: with what it saved, and not promised anything.

    Its last checkpoint saved all work up to then. One that does not run stays as it is. One that is resized
    is stopped too, and goes on at once.
    """
    running, progress = job.running, job.progress or Progress()
    if running is None:
        return job
    saved_at = running.last_checkpoint_at
    if saved_at is not None and (saved := _seconds(saved_at, works_since(running))):
        completed = progress.completed_milli + speed_milli * saved
        progress = progress.model_copy(update={"completed_milli": completed, "last_checkpoint_at": saved_at})
    return job.model_copy(update={"running": None, "promise": None, "progress": progress})


def _seconds(later: datetime, earlier: datetime) -> int:
    return max(0, int((later - earlier).total_seconds()))
