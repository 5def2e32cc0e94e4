"""Worth: points of the jobs of a snapshot, by the goals of the policy."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from planner.models.objective import Goal
from planner.models.policy import LARGEST_POINTS, POINTS_PER_WEIGHT, job_points
from planner.models.units import MILLI

if TYPE_CHECKING:
    from planner.models.durations import Durations
    from planner.models.job import Job
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot

_LEAST, _MOST = 1 / 64, 640
"""Limits of how much more than a typical job a job counts, and still a GPU has a point."""

_AGED: Final = 800
"""The upper limit with its age: below the price of a guarantee, a thousand times a typical GPU's points."""

_FRESH: Final = 8
"""How much more than a job that has had a typical service one counts that has had none, about."""

_STEPS: Final = 16
"""Into which the time that doubles a worth is divided, so that jobs submitted close together stay equal."""

_SECONDS_PER_HOUR: Final = 3600


class Worth:
    """
    What jobs are worth at full size and speed.

    With the goal `value` as `policy.job_points`; with the others

        w_j = weight · (1 + priority) · GPUs · factor_j,    factor between 1/64 and 800

    where the factor is that of the goal, see `_factor`. Rounded to two digits, so that jobs that are nearly
    equal are asked for as one class. At least 1 and at most 10⁹; a weight of 0 is worth nothing.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations) -> None:
        self._snapshot, self._policy, self._durations = snapshot, policy, durations
        self._now = snapshot.taken_at

    def points(self, job: Job) -> int:
        """Points of a job."""
        objective, blend = self._policy.objective, self._policy.objective.blend
        first = self._of(job, objective.goal_of(job.queue))
        if blend is None or job.weight_milli == 0:
            return first
        second = round(MILLI * blend.part)
        both = (MILLI - second) * first + second * self._of(job, blend.goal)
        return max(1, both // MILLI)

    def _of(self, job: Job, goal: Goal) -> int:
        if goal is Goal.VALUE:
            return job_points(self._policy, job, self._now)
        if job.weight_milli == 0:
            return 0
        ahead = self._policy.horizon.slots > 1
        if ahead and goal is Goal.COMPLETION:
            # Each hour sooner counts as much for every job.
            size, factor = MILLI, self._aged(job, MILLI * self.span // _SECONDS_PER_HOUR)
        else:
            size, factor = self._gpus_milli(job), self._factor(job, goal)
        full = job.weight_milli * (1 + job.priority) * size * POINTS_PER_WEIGHT // MILLI**2
        return min(LARGEST_POINTS, max(1, _two_digits(full * factor // MILLI)))

    def _factor(self, job: Job, goal: Goal) -> int:
        """
        How much more than a typical job a job counts for a goal, in thousandths.

            completion              typical service / service left
            least-attained-service  typical service / (typical service / 8 + service attained)
            makespan                time left / typical time left
            fairness                ρ^power,  ρ = (age + time left) / (whole time · contention)

        Service is time left times GPUs; typical is the mean, to the power of two below. The first three
        double with the age (`objective.doubling`). Contention is the GPUs that all jobs ask for over those of
        the cluster, at least 1. Sources: Smith, Naval Research Logistics Quarterly 3, 1956; Gu et al.,
        Tiresias, NSDI 2019; Graham, SIAM Journal on Applied Mathematics 17, 1969; Mahajan et al., Themis,
        NSDI 2020.
        """
        left = max(self._policy.objective.shortest, self._durations.until_completion(job))
        if goal is Goal.FAIRNESS:
            whole = left + self._durations.attained(job)
            rho = (self._age(job) + left) / (whole * self._contention)
            return _within(round(MILLI * min(rho, _MOST) ** self._policy.objective.power))
        gpus = self._gpus_milli(job)
        if goal is Goal.MAKESPAN:
            return self._aged(job, MILLI * left // self._typical_time)
        if goal is Goal.COMPLETION:
            return self._aged(job, MILLI * self._typical_service // (left * gpus))
        attained = self._durations.attained(job) * gpus
        return self._aged(job, MILLI * self._typical_service // (self._typical_service // _FRESH + attained))

    def _aged(self, job: Job, factor: int) -> int:
        steps = _STEPS * self._age(job) // self._policy.objective.doubling
        grown = _within(factor) * 2 ** min(steps / _STEPS, 20)
        return max(1, min(_AGED * MILLI, round(grown)))

    def _age(self, job: Job) -> int:
        return max(0, int((self._now - job.submitted_at).total_seconds()))

    def _gpus_milli(self, job: Job) -> int:
        smallest = self._policy.weights.smallest_size_milli
        return max(smallest, 1, job.request.total_gpu_milli * job.gang.maximum)

    @cached_property
    def span(self) -> int:
        """Seconds from now in which every job could complete that starts within the horizon."""
        longest = max(map(self._durations.until_completion, self._snapshot.jobs), default=0)
        return self._policy.horizon.slots * self._policy.horizon.length + longest

    @cached_property
    def _typical_time(self) -> int:
        times = [
            self._durations.until_completion(job)
            for job in self._snapshot.jobs
            if job.weight_milli and not job.held
        ]
        return _power_of_two(sum(times) // len(times)) if times else 1

    @cached_property
    def _typical_service(self) -> int:
        services = [
            self._durations.until_completion(job) * self._gpus_milli(job)
            for job in self._snapshot.jobs
            if job.weight_milli and not job.held
        ]
        return max(_MOST, _power_of_two(sum(services) // len(services)) if services else 1)

    @cached_property
    def _contention(self) -> float:
        nodes = self._snapshot.cluster.nodes
        gpus = MILLI * sum(node.gpus.count for node in nodes if node.gpus)
        asked = sum(self._gpus_milli(job) for job in self._snapshot.jobs if not job.held)
        return max(1.0, asked / max(1, gpus))


def _within(factor: int) -> int:
    return max(round(MILLI * _LEAST), min(MILLI * _MOST, factor))


def _two_digits(points: int) -> int:
    return int(float(f"{points:.1e}"))


def _power_of_two(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)
