"""Snapshot: one consistent view of cluster, queues and jobs at one instant."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal

from planner.models.base import Noun
from planner.models.cluster import Cluster
from planner.models.job import Job
from planner.models.placement import Placement  # noqa: TC001 - pydantic reads annotations
from planner.models.queue import Queue
from planner.models.units import Timestamp

SNAPSHOT_FORMAT: Final = "1.0"


class Snapshot(Noun):
    """Everything one epoch knows about the world."""

    format_version: Literal["1.0"] = SNAPSHOT_FORMAT
    taken_at: Timestamp
    cluster: Cluster
    queues: tuple[Queue, ...]
    jobs: tuple[Job, ...] = ()

    def canonical(self) -> Snapshot:
        """The same snapshot with every collection sorted by name, so that input order changes nothing."""
        return self.model_copy(
            update={
                "cluster": self.cluster.model_copy(
                    update={"nodes": tuple(sorted(self.cluster.nodes, key=lambda node: node.name))}
                ),
                "queues": tuple(sorted(self.queues, key=lambda queue: queue.name)),
                "jobs": tuple(sorted(self.jobs, key=lambda job: job.name)),
            }
        )

    @cached_property
    def job_by_name(self) -> dict[str, Job]:
        """Jobs by name."""
        return {job.name: job for job in self.jobs}

    @cached_property
    def running_placements(self) -> tuple[Placement, ...]:
        """Where the running jobs are, in the order of the jobs."""
        return tuple(placement for job in self.jobs if (placement := job.placement))
