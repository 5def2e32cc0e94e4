"""Worth: points of the jobs of a snapshot, by the goals of the policy."""

from __future__ import annotations

from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Final

from planner.models.objective import Goal
from planner.models.policy import LARGEST_POINTS, POINTS_PER_WEIGHT, job_points
from planner.models.units import MILLI

if TYPE_CHECKING:
    from planner.models.durations import Durations
    from planner.models.job import Job
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

_USUAL_SECONDS: Final = 24 * 3600
"""A job with a GPU-day before it, or a day, is worth what it is with the goal `value`."""

_ROOT: Final = 4
"""Points are the fourth root of what decides on the order, so that prices keep their meaning for all jobs."""

_STEPS: Final = 8
"""Into which a doubling is divided, so that jobs that are nearly equal are asked for as one class."""

_MOST_DOUBLINGS: Final = 16
"""By age."""

_LATEST: Final = 64
"""Times an equal share: a job that is later counts no more."""


class Worth:
    """
    What jobs are worth at full size and speed.

    With the goal `value` as `policy.job_points`; with the others

        w_j = (1 + priority) · GPUs · factor_j

    with the factor of the goal, see `_factor`, which contains the weight. At least 1 and at most 10⁹; a
    weight of 0 is worth nothing.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations) -> None:
        self._snapshot, self._policy, self._durations = snapshot, policy, durations
        self._now = snapshot.taken_at

    def points(self, job: Job) -> int:
        """Points of a job."""
        blend = self._policy.objective.blend
        first = self._of(job, self._policy.objective.goal)
        if blend is None or job.weight_milli == 0:
            return first
        return max(1, round((1 - blend.part) * first + blend.part * self._of(job, blend.goal)))

    def _of(self, job: Job, goal: Goal) -> int:
        if goal is Goal.VALUE:
            return job_points(self._policy, job, self._now)
        if job.weight_milli == 0:
            return 0
        full = POINTS_PER_WEIGHT * (1 + job.priority) * self._gpus(job)
        return min(LARGEST_POINTS, max(1, round(full * self._factor(job, goal))))

    def _factor(self, job: Job, goal: Goal) -> float:
        """
        How much more a job counts for a goal than one that has a GPU-day, or a day, before it.

            completion              ⁴√( weight · GPU-day / service left · 2^age )
            least-attained-service  ⁴√( weight · GPU-day / (GPU-hour + service attained) · 2^age )
            makespan                ⁴√( weight · time left / day · 2^age )
            fairness                weight · ρ

        with ρ = (time since submission + time left) / (whole time · contention), at most 64. Service is time
        times GPUs. Age is the time that the job waited until it started, or until now, over
        `objective.doubling`, at most 16. Contention is the GPUs that jobs ask for over those there are, at
        least 1. The root changes no order among jobs. Sources: Smith, Naval Research Logistics Quarterly 3,
        1956; Gu et al., Tiresias, NSDI 2019; Graham, SIAM Journal on Applied Mathematics 17, 1969; Mahajan et
        al., Themis, NSDI 2020.
        """
        weight = job.weight_milli / MILLI
        if goal is Goal.FAIRNESS:
            left = self._left(job)
            since = (self._now - job.submitted_at).total_seconds()
            rho = (max(0.0, since) + left) / ((left + self._durations.attained(job)) * self._contention)
            return weight * min(_LATEST, rho)
        shortest = self._policy.objective.shortest
        match goal:
            case Goal.COMPLETION:
                service = max(shortest, self._durations.until_completion(job)) * self._gpus(job)
                urgency = _USUAL_SECONDS / service
            case Goal.LEAST_ATTAINED_SERVICE:
                urgency = _USUAL_SECONDS / (3600 + self._durations.attained(job) * self._gpus(job))
            case _:
                urgency = self._left(job) / _USUAL_SECONDS
        doublings = log2(weight * urgency) + min(_MOST_DOUBLINGS, self._age(job))
        steps = int(_STEPS * doublings // 1)
        return float(2 ** (steps / (_STEPS * _ROOT)))

    def _age(self, job: Job) -> float:
        """Doublings; those of a running job are those of its start: no job becomes untouchable by running."""
        until = self._now if job.running is None else job.running.started_at
        return max(0.0, (until - job.submitted_at).total_seconds()) / self._policy.objective.doubling

    def _left(self, job: Job) -> int:
        return max(self._policy.objective.shortest, self._durations.left(job))

    def _gpus(self, job: Job) -> float:
        smallest = max(1, self._policy.weights.smallest_size_milli)
        return max(smallest, job.request.total_gpu_milli * job.gang.maximum) / MILLI

    @cached_property
    def _contention(self) -> float:
        nodes = self._snapshot.cluster.nodes
        gpus = sum(node.gpus.count for node in nodes if node.gpus and node.schedulable)
        asked = sum(
            job.request.total_gpu_milli * job.gang.maximum
            for job in self._snapshot.jobs
            if job.weight_milli and not job.held
        )
        return max(1.0, asked / MILLI / max(1, gpus))
