"""What each change of a job does to the objective, in points, for the reasons and for the order of starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.changes import Deed
from planner.models.policy import completion_points, job_points
from planner.models.pricing import disruption_points

if TYPE_CHECKING:
    from planner.changes import Changes, JobChange
    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.policy import Policy


@dataclass(frozen=True, slots=True)
class Worth:
    """Prices of one epoch."""

    changes: Changes
    policy: Policy

    def points(self, change: JobChange) -> int:
        """What the change adds to the objective: the work done or no longer done, and its own price."""
        gained = self.value(change.job, change.after) - self.value(change.job, change.before)
        prices = self.policy.prices
        match change.deed:
            case Deed.PREEMPT:
                return gained - self._disruption(change.job)
            case Deed.MIGRATE:
                return gained - self._disruption(change.job) - prices.migration
            case Deed.SHRINK | Deed.GROW:
                return gained - prices.resize
            case _:
                return gained

    def value(self, job: Job, placement: Placement | None) -> int:
        """Points of the job on its places; 0 where it waits."""
        if placement is None:
            return 0
        full = job_points(self.policy, job, self.changes.snapshot.taken_at)
        return completion_points(full, job, self.gpu_model(job, placement), len(placement.replicas))

    def gpu_model(self, job: Job, placement: Placement) -> str | None:
        """The GPU model a job runs on; None without GPUs."""
        node = self.changes.nodes[placement.replicas[0].node]
        return node.gpu_model if job.request.needs_gpu else None

    def _disruption(self, job: Job) -> int:
        return disruption_points(self.policy, job, self.changes.snapshot.taken_at)
