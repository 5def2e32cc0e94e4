"""Job value: points of the jobs of a snapshot, by the goals of the policy."""

from __future__ import annotations

from functools import cached_property
from math import log1p, log2
from typing import TYPE_CHECKING, Final

from gpuplan.models.policy.policy import SizeBasis
from gpuplan.models.policy.settings import Goal
from gpuplan.models.queue import queue_and_above
from gpuplan.models.timing.durations import Durations, DurationSource, LeftBasis, work_left
from gpuplan.models.timing.progress import age_in_doublings
from gpuplan.models.units import MILLI
from gpuplan.models.value.queue_rollout import RolloutStart, later_starts
from gpuplan.models.value.scaled_sizes import ModelSize, ScaledSizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.policy.settings import QueueObjective
    from gpuplan.models.snapshot import Snapshot

POINTS_PER_WEIGHT: Final = 100
"""Objective points per unit of weight: fine enough to order jobs, coarse enough for a proof."""

LARGEST_POINTS: Final = 10**9
"""Maximum points of one job: sums over a whole queue stay exact in floating point, as solvers need."""

_SECONDS_PER_HOUR: Final = 3600

_USUAL_SECONDS: Final = 24 * _SECONDS_PER_HOUR
"""With one day left, a job has the same value under `completion` and `makespan` as under `value`."""

_USUAL_SERVICE: Final = 8 * _USUAL_SECONDS
"""The same for goals that count service instead of time: a node of eight GPUs for a day."""

ROOT: Final = 4
"""Points are the fourth root of the ordering criterion, so that prices stay comparable for all jobs."""

_STEPS: Final = 8
"""Steps per doubling to which values are rounded, so that nearly equal jobs form one class."""

_COMPLETION_GOALS: Final = frozenset({Goal.COMPLETION, Goal.GOODPUT, Goal.CRITICAL_PATH})
"""Goals that favour jobs that complete soon."""

_CRITICAL: Final = 0.95
"""Fraction of the minimum makespan; a job with at least this much time left is on the critical path."""

_PARTS: Final = 1_000_000
"""Denominator of a ratio of logarithms."""

_MAX_RHO: Final = 64
"""Limit on ρ: a job delayed more than this, relative to an equal share, has no more value."""


def has_same_points(snapshot: Snapshot, policy: Policy, other: Policy) -> bool:
    """True if each job of a snapshot has the same value under both policies."""
    if policy == other:
        return True
    one, two = (JobValue(snapshot, each, Durations(snapshot, each)) for each in (policy, other))
    return all(one.points(job) == two.points(job) for job in snapshot.jobs)


class JobValue:
    """
    Value of jobs at full size and speed.

    With the goal `value` it is `job_points`, over a horizon multiplied by hours_j if other goals are
    used as well (unless its basis already contains hours). With the other goals

        w_j = 100 · (1 + priority) · GPUs · factor_j · hours_j

    with the factor of the goal, see `_factor`, which contains the weight. hours_j is 1 in plans of one slot.
    Over a horizon it is the time left of the job, at least a slot, in hours: the points are then for all its
    service, and an hour of service has the same value for long and short jobs (`Policy.owed` raises the
    prices of obligations accordingly). At least 1 and at most 10⁹; a weight of 0 gives 0.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations) -> None:
        self._snapshot, self._policy, self._durations = snapshot, policy, durations
        self._now = snapshot.taken_at
        self._by_queue = policy.objective.queues
        self._sizes = ScaledSizes(snapshot)

    def points(self, job: Job) -> int:
        """Points of a job."""
        objective = self._objective(job.queue)
        first, blend = self._of(job, objective.goal), objective.blend
        if blend is None or job.weight_milli == 0:
            return first
        return max(1, round((1 - blend.part) * first + blend.part * self._of(job, blend.goal)))

    def _objective(self, queue: str) -> QueueObjective:
        """Objective of the queue, or of the nearest queue above it that has one."""
        for name in queue_and_above(queue, self._snapshot.parent_queues) if self._by_queue else ():
            if name in self._by_queue:
                return self._by_queue[name]
        return self._policy.objective

    @cached_property
    def _guaranteed(self) -> frozenset[str]:
        """Queues with a guarantee."""
        return frozenset(
            queue.name
            for queue in self._snapshot.queues
            if any(quota.guarantee for quota in queue.gpu_quotas)
        )

    def goal(self, job: Job) -> Goal:
        """The first goal of the job's queue."""
        return self._objective(job.queue).goal

    def seconds_left(self, job: Job) -> int:
        """Time to its end that its goal assumes, on its fastest GPU model."""
        by_completion = self.goal(job) in _COMPLETION_GOALS
        return self._durations.until_completion(job) if by_completion else self._durations.left(job)

    def left_basis(self, job: Job) -> LeftBasis:
        """Basis of `seconds_left`."""
        if job.expected_duration is not None:
            return LeftBasis.DECLARED
        if self.goal(job) not in _COMPLETION_GOALS:
            return LeftBasis.EXPECTED
        return LeftBasis.GITTINS_INDEX if self._policy.disruption.preempts_equals else LeftBasis.MEAN

    def per_gpu(self, job: Job) -> float:
        """Points per GPU, and over a horizon per hour of service."""
        return self.points(job) / (self._gpus(job) * self._hours(job))

    def size_of(self, job: Job, gpu_model: str | None) -> ModelSize:
        """
        Replicas of a job that share its points evenly on a GPU model, and its worth with all replicas there.

        For a scaled job with a goal such as `completion` they depend on the contention (`ScaledSizes`): if
        GPUs were shared among more jobs, each of them would complete later. With other goals no replicas
        share, and points are in proportion to speed.
        """
        if job.gang.scaled and self.goal(job) in _COMPLETION_GOALS:
            return self._sizes.of(job, gpu_model)
        return ModelSize(0, job.speed_milli(gpu_model))

    def patience(self, job: Job, gpu_model: str | None) -> int:
        """
        Seconds from its submission until which a pending job does not start on a GPU model; 0 if it does.

        Where its time, and that of the jobs that it delays, would be much longer than on its best model, it
        rather waits, but no longer than it would lose by the start. So whatever happens it loses at most
        twice as much as if the future were known (ski rental; Karlin et al., Algorithmica 3, 1988), and never
        waits longer than `objective.doubling`. With one slot only: with several slots, a job gets a later
        start on its best model. A job of unknown duration does not wait, nor one in a queue with a guarantee.
        """
        if job.running or not (job.gang.scaled and job.request.needs_gpu) or self._policy.horizon.slots > 1:
            return 0
        regret = self.size_of(job, gpu_model).regret
        if not regret or self._durations.expected(job).source is DurationSource.DEFAULT:
            return 0
        if self._guaranteed.intersection(queue_and_above(job.queue, self._snapshot.parent_queues)):
            return 0
        return min(self._policy.objective.doubling, round(regret * self._left(job)))

    def waits_for_better(self, job: Job, gpu_model: str | None) -> bool:
        """
        True if a pending job does not start on a GPU model now, but rather waits for its best one.

        It does while its `patience` lasts, if running jobs are expected to end by then on as many GPUs of the
        best model as it needs at least, on nodes that it may use. GPUs that are free now do not count: this
        plan may place it there, and if other jobs get them, how long they stay is known to the next plan.
        A job of one size waits if it starts later, or on another model, in the best schedule of the queue.
        """
        if not job.gang.scaled:
            start = self.planned_start(job)
            return start is not None and (start.begins > 0 or start.gpu_model != gpu_model)
        left = self.patience(job, gpu_model) - job.waiting_seconds(self._now)
        if left <= 0:
            return False
        needed = job.request.total_gpu_milli * job.gang.minimum
        free = self._durations.until_free(self.best_model(job), needed, self._sizes.best_nodes(job))
        return free is not None and free <= left

    def planned_start(self, job: Job) -> RolloutStart | None:
        """The start of a pending job in the best schedule; None if jobs start as soon as they fit."""
        return None if job.running else self._planned_starts.get(job.name)

    @cached_property
    def _planned_starts(self) -> dict[str, RolloutStart]:
        """`queue_rollout.later_starts`, computed once for equal policies."""
        found = self._snapshot.derived.setdefault(RolloutStart, [])
        for policy, starts in found:
            if policy is self._policy or policy == self._policy:
                return dict(starts)
        starts = later_starts(self._snapshot, self._policy, self._durations)
        found.append((self._policy, starts))
        return starts

    def avoided_models(self, job: Job) -> tuple[str, ...]:
        """Sorted GPU models on which a pending job does not start yet (`waits_for_better`)."""
        if not (job.gang.scaled or self.planned_start(job)):
            return ()
        return tuple(model for model in self._gpu_models if self.waits_for_better(job, model))

    @cached_property
    def _gpu_models(self) -> list[str]:
        return sorted(set(self._snapshot.cluster.gpu_model_by_node.values()))

    def best_model(self, job: Job) -> str | None:
        """The GPU model for which a job waits."""
        return self._sizes.best_model(job)

    def shares(self, job: Job, done: Sequence[int], seconds: int) -> tuple[Sequence[int], int]:
        """
        Fraction of a job's points that each of `done` of its `seconds` earns, as numerators and denominator.

        It is the fraction of its time. With `fairness` it is the fraction of the increase of the logarithm of
        its service,

            ln( 1 + done / had ) / ln( 1 + seconds / had )

        with `had` its service so far plus a slot. So the first hours of a job count more than later ones, and
        the plan maximizes the product of services over the horizon (Nash social welfare; Zheng et al.,
        Shockwave, NSDI 2023).
        """
        if self.goal(job) is not Goal.FAIRNESS:
            return done, seconds
        had = self._durations.attained(job) + self._policy.horizon.length
        whole = log1p(seconds / had)
        return [round(_PARTS * log1p(each / had) / whole) for each in done], _PARTS

    def _of(self, job: Job, goal: Goal) -> int:
        if goal is Goal.VALUE:
            points = job_points(self._policy, job, self._now)
            by_hours = self._policy.weights.basis is SizeBasis.GPU_HOUR
            return points if by_hours else min(LARGEST_POINTS, round(points * self._hours(job)))
        if job.weight_milli == 0:
            return 0
        full = POINTS_PER_WEIGHT * (1 + job.priority) * self._gpus(job) * self._hours(job)
        return min(LARGEST_POINTS, max(1, round(full * self._factor(job, goal))))

    def _hours(self, job: Job) -> float:
        """Hours of service that its points are for; 1 if they are not per hour."""
        horizon = self._policy.horizon
        if horizon.slots == 1 or self._policy.objective.goals == {Goal.VALUE}:
            return 1
        return max(horizon.length, self._durations.left(job)) / _SECONDS_PER_HOUR

    def _factor(self, job: Job, goal: Goal) -> float:
        """
        Factor of a job's value under a goal, relative to `value`.

            completion              ⁴√( weight · day / time left · 2^age )
               where equals take turns  ⁴√( weight · 8 GPU-days / service left · 2^age )
            least-attained-service  ⁴√( weight · 8 GPU-days / (GPU-hour + service attained) · 2^age )
            makespan                ⁴√( weight · time left / day · 2^age )
            goodput                 ⁴√( weight · day / (time left · gain) · 2^age ) · gain · fewest / most
            critical-path           ⁴√( weight · day / time left · 2^age )
               on the critical path    ⁴√( weight · day / `objective.shortest` · 2^age )
            fairness                weight · ρ

        with ρ = (time since submission + time left) / (whole time · contention), at most 64. Service is
        time times GPUs: it decides where large jobs may be preempted for small ones. Where every job runs
        to its end, an order by service left would keep large jobs for last, when few jobs are left to
        fill the GPUs beside them. Age is the time in which the job had no places, until it started or until
        now, over `objective.doubling`, at most 13, plus the boost of a preempted job. Contention is the
        number of requested GPUs over the number of usable ones, at least 1. Gain is the speed at full size
        over that at minimum size, on the fastest GPU model: `goodput` is `completion` at the speed of the
        smallest size. A job is on the critical path if its time left is at least 95 % of `_together`.
        The root does not change the order of jobs. Sources: Smith, Naval Research Logistics Quarterly 3,
        1956; Gu et al., Tiresias, NSDI 2019; Graham, SIAM Journal on Applied Mathematics 17, 1969;
        Mahajan et al., Themis, NSDI 2020; Jayaram Subramanya et al., Sia, SOSP 2023; McNaughton,
        Management Science 6, 1959, and Cho et al., IEICE Transactions on Communications E85-B, 2002, for
        the critical path.
        """
        weight = job.weight_milli / MILLI
        if goal is Goal.FAIRNESS:
            return weight * min(_MAX_RHO, self.rho(job))
        shortest, scale = self._policy.objective.shortest, 1.0
        match goal:
            case Goal.COMPLETION | Goal.GOODPUT:
                seconds, part = max(1.0 * shortest, self._durations.until_completion(job)), 1.0
                if goal is Goal.GOODPUT or job.gang.scaled:
                    gain, part = _gain(job), job.gang.minimum / job.gang.maximum
                    seconds, scale = seconds * gain, gain * part
                if goal is Goal.COMPLETION and self._policy.disruption.preempts_equals:
                    urgency = _USUAL_SERVICE / (seconds * (self._gpus(job) * part))
                else:
                    urgency = _USUAL_SECONDS / seconds
            case Goal.LEAST_ATTAINED_SERVICE:
                urgency = _USUAL_SERVICE / (_SECONDS_PER_HOUR + self.service(job))
            case Goal.CRITICAL_PATH:
                critical = self._left(job) >= _CRITICAL * self._together
                seconds = shortest if critical else max(shortest, self._durations.until_completion(job))
                urgency = _USUAL_SECONDS / seconds
            case _:
                urgency = self._left(job) / _USUAL_SECONDS
        age = age_in_doublings(job, self._policy.objective.doubling, self._now)
        doublings = log2(weight * urgency) + age
        doublings += self._policy.weights.requeue.of(job.preemptions)
        steps = int(_STEPS * doublings // 1)
        return scale * float(2 ** (steps / (_STEPS * ROOT)))

    def rho(self, job: Job) -> float:
        """Its time from submission to its end, relative to that with an equal share of the cluster."""
        left = self._left(job)
        since = (self._now - job.submitted_at).total_seconds()
        return (max(0.0, since) + left) / ((left + self._durations.attained(job)) * self._contention)

    def service(self, job: Job) -> float:
        """
        GPU-seconds of service of a job so far, including lost work, with the replicas that it held.

        A job without GPUs counts its time, at the minimum size.
        """
        if job.request.needs_gpu:
            return self._durations.served(job)
        return self._durations.attained(job) * self._gpus(job)

    def _left(self, job: Job) -> int:
        return max(self._policy.objective.shortest, self._durations.left(job))

    def _gpus(self, job: Job) -> float:
        smallest = max(1, self._policy.weights.smallest_size_milli)
        return max(smallest, _milli(job)) / MILLI

    @cached_property
    def _contention(self) -> float:
        """GPUs requested by all jobs at full size, over usable GPUs, at least 1."""
        asked = sum(_milli(job) for job in self._snapshot.jobs if job.weight_milli and not job.withheld)
        return max(1.0, asked / MILLI / self._usable)

    @cached_property
    def _together(self) -> float:
        """
        Lower bound on the makespan of all jobs with GPUs: the longest job, or total service over GPUs.

        It holds even if jobs could share GPUs arbitrarily (McNaughton 1959). Running jobs that may not be
        preempted, such as services, are excluded.
        """
        left = [
            (self._left(job), _milli(job) / MILLI)
            for job in self._snapshot.jobs
            if job.weight_milli
            and _milli(job)
            and not job.withheld
            and (job.preemptible or job.running is None)
        ]
        service = sum(seconds * gpus for seconds, gpus in left)
        return max(service / self._usable, max((seconds for seconds, _ in left), default=0))

    @cached_property
    def _usable(self) -> int:
        """GPUs of nodes that accept jobs, at least 1."""
        return max(1, sum(self._snapshot.cluster.open_gpus.values()))


def _gain(job: Job) -> float:
    """Speed at full size over that at minimum size, on the fastest GPU model."""
    models: Iterable[str | None] = job.gpu_models or (None,)
    return MILLI / max(1, *(job.rate_milli(model, job.gang.minimum) for model in models))


def _milli(job: Job) -> int:
    """Thousandths of GPUs at full size."""
    return job.request.total_gpu_milli * job.gang.maximum


def job_points(policy: Policy, job: Job, now: datetime) -> int:
    """
    Points of a job that runs at full size on its fastest GPU model, at least 1 and at most 10⁹.

        w_j = 100 · weight · (1 + priority + min(cap, gain · ⌊waiting / step⌋) + boost) · size

    with boost = min(cap, gain · preemptions) of `weights.requeue`, and size in GPUs, GPU-hours or 1 by
    `weights.basis`, at least `smallest_size` GPUs; hours are the hours left after earlier runs. Waiting
    counts in full steps, so that jobs submitted close together stay equal. A weight of 0 gives 0 points.
    """
    if job.weight_milli == 0:
        return 0
    weights = policy.weights
    waited = job.waiting_seconds(now)
    boost = min(weights.ageing.cap, weights.ageing.gain * (waited // weights.ageing.step))
    boost += weights.requeue.of(job.preemptions)
    gpus_milli = max(weights.smallest_size_milli, job.request.total_gpu_milli * job.gang.maximum)
    seconds = job.expected_duration if job.expected_duration is not None else weights.default_duration
    match weights.basis:
        case SizeBasis.JOB:
            size_milli = MILLI
        case SizeBasis.GPU:
            size_milli = gpus_milli
        case SizeBasis.GPU_HOUR:
            size_milli = gpus_milli * work_left(policy, job, seconds) // (MILLI * _SECONDS_PER_HOUR)
    points = job.weight_milli * (1 + job.priority + boost) * size_milli * POINTS_PER_WEIGHT // MILLI**2
    return min(LARGEST_POINTS, max(1, points))


def points_at_size(at_full_size: int, job: Job, gpu_model: str | None, replicas: int, usual: int = 0) -> int:
    """
    Points of a job with this number of replicas, given its points at full size on a GPU model; at least 1.

    A rigid gang earns all of them. Each replica of an elastic job earns its part of the speed (`Gang.steps`),
    rounded down; without scaling, equal parts of at least 1.
    """
    if not job.gang.elastic:
        return max(1, at_full_size)
    if not job.gang.scaled:
        return replicas * max(1, at_full_size // job.gang.maximum)
    return max(1, sum(replica_points(at_full_size, job, gpu_model, usual)[:replicas]))


def replica_points(at_full_size: int, job: Job, gpu_model: str | None, usual: int = 0) -> tuple[int, ...]:
    """Points that each replica of a scaled job adds, in order: none adds more than one before it."""
    most = job.gang.speed_milli(job.gang.maximum, gpu_model)
    points: list[int] = []
    for speed, replicas in job.gang.steps(gpu_model, usual=usual):
        each = at_full_size * speed // (replicas * most)
        points += [min(points[-1], each) if points else max(1, each)] * replicas
    return tuple(points)
