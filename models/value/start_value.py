"""Start value: points of a job by start time and GPU model: completion, lateness and tariffs."""

from __future__ import annotations

from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING, Final

from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import disruption_points, lost_seconds
from gpuplan.models.value.job_value import ROOT, JobValue, points_at_size

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

_SECONDS_PER_HOUR: Final = 3600


class StartValue:
    """
    Completion, lateness and tariffs of one snapshot under one policy.

    With a single slot, completion depends on GPU model and replicas only, and lateness and tariffs are 0.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, durations: Durations | None = None) -> None:
        self._policy = policy
        self._now = snapshot.taken_at
        self.durations = durations or Durations(snapshot, policy)
        self.slots = TimeSlots.of(policy.horizon, snapshot.taken_at)
        self._ahead = self.slots.count > 1
        self.worth = JobValue(snapshot, policy, self.durations)
        self._full: dict[str, int] = {}
        self._full_of_plain: dict[tuple[Hashable, ...], int] = {}
        self._tariffs = [
            (tariff, tuple(tariff.spans(snapshot.taken_at, self.slots.end)))
            for tariff in (snapshot.cluster.tariffs if self._ahead else ())
        ]

    def completion(
        self, job: Job, gpu_model: str | None, replicas: int, *, start: int = 0, seconds: int | None = None
    ) -> int:
        """Points of a job with this number of replicas and this start, as `completions`."""
        return self.completions(job, gpu_model, replicas, (start,), seconds=seconds)[0]

    def completions(
        self,
        job: Job,
        gpu_model: str | None,
        replicas: int,
        starts: Sequence[int],
        *,
        seconds: int | None = None,
    ) -> list[int]:
        """
        Points of a job with this number of replicas and this duration on its GPU model, for each start.

            w_j · min(1, (H − start) / seconds) · (1 − earliness · min(start + seconds, H) / H)

        with H the end of the horizon. It is the fraction of its work done by H, slightly reduced for each
        second of later completion. So for jobs that all complete within the horizon the sum of weighted
        completion times is minimal (Smith, 1956). With `fairness` the fraction is that of the logarithm
        (`JobValue.shares`). Rounded down, at least 1. An elastic job earns the part of its replicas
        (`points_at_size`). `seconds` is the duration of the whole job unless given. A start on a GPU model on
        which the job rather waits for a better one (`JobValue.waits_for_better`) costs a point.
        """
        if (full := self.full_points(job)) == 0:
            return [0] * len(starts)
        if self.worth.waits_for_better(job, gpu_model):
            return [-1] * len(starts)
        if not (self._ahead or job.gang.elastic):
            return [max(1, full * job.speed_milli(gpu_model) // MILLI)] * len(starts)
        size = self.worth.size_of(job, gpu_model)
        if not self._ahead:
            at_full_size = full * size.worth_milli // MILLI
            return [points_at_size(at_full_size, job, gpu_model, replicas, size.usual)] * len(starts)
        seconds = self.durations.seconds(job, gpu_model) if seconds is None else max(1, seconds)
        end, earliness = self.slots.end, self._policy.horizon.earliness_milli
        done, whole = self.worth.shares(job, [min(seconds, max(0, end - start)) for start in starts], seconds)
        found = []
        for start, part in zip(starts, done, strict=True):
            early = MILLI * end - earliness * min(start + seconds, end)
            at_full_size = full * part * early // (whole * MILLI * end)
            found.append(points_at_size(at_full_size, job, gpu_model, replicas, size.usual))
        return found

    def further(
        self, job: Job, gpu_model: str | None, sizes: Iterable[int], *, seconds: int | None = None
    ) -> tuple[int, ...]:
        """Increase of points from each size to the next, for a job that starts now."""
        points = [self.completion(job, gpu_model, size, seconds=seconds) for size in sizes]
        return tuple(larger - smaller for smaller, larger in pairwise(points))

    def usual_points(self, job: Job, gpu_model: str | None) -> int:
        """Points of a job that starts now on a GPU model with the size that it usually gets there."""
        return self.completion(job, gpu_model, self.worth.size_of(job, gpu_model).usual or job.gang.maximum)

    def full_points(self, job: Job) -> int:
        """`JobValue.points` of a job of the snapshot, cached by name."""
        full = self._full.get(job.name)
        if full is None:
            full = self._full[job.name] = self._points_of(job)
        return full

    def _points_of(self, job: Job) -> int:
        """Computed once for all plain jobs that differ in their name alone."""
        if (key := job.plain_key) is None:
            return self.worth.points(job)
        full = self._full_of_plain.get(key)
        if full is None:
            full = self._full_of_plain[key] = self.worth.points(job)
        return full

    def points_per_gpu(self, job: Job) -> float:
        """`full_points` per GPU, over a horizon also per hour of service: the order within a priority."""
        return self.worth.per_gpu(job)

    def saved_lateness(self, job: Job, *, start: int, seconds: int) -> int:
        """
        Points gained by this start compared with one after the horizon; never negative, 0 without a deadline.

            late(t) = min(w_j, w_j · lateness · hours of t after the deadline)
            saved = late(H + seconds) − late(start + seconds)
        """
        if not self._ahead or job.deadline is None:
            return 0
        return self._late(job, self.slots.end + seconds) - self._late(job, start + seconds)

    def _late(self, job: Job, finish: int) -> int:
        if job.deadline is None:
            return 0
        late = max(0, finish - int((job.deadline - self._now).total_seconds()))
        full = self.full_points(job)
        return min(full, full * self._policy.prices.lateness_milli * late // (MILLI * _SECONDS_PER_HOUR))

    def misses_hard_deadline(self, job: Job, *, start: int, seconds: int) -> bool:
        """True if the job misses its hard deadline with this start."""
        if not job.hard_deadline or job.deadline is None:
            return False
        return start + seconds > int((job.deadline - self._now).total_seconds())

    def stop_points(self, job: Job) -> int:
        """
        Price of the time that a running job loses when it is preempted.

        That is `disruption_cost.disruption_points`, and its `delay_points`.
        """
        return disruption_points(self._policy, job, self._now) + self.delay_points(job)

    def delay_points(self, job: Job) -> int:
        """
        Price of a preempted job's own delay: where jobs of equal priority take turns, in plans of one slot.

            w_v · ( ⁴√(1 + longer / wait) − 1 )

        with w_v its points at its places, `longer` the seconds by which it then runs longer, including those
        on a slower GPU model (`Durations.slower`), and `wait` the seconds until running jobs end on as many
        GPUs of its model as it holds, at least `objective.shortest`. A stop starts another job earlier by
        `wait`, and delays this one by `wait` and `longer`. So it pays if the index of the other is larger by
        more than (wait + longer) / wait; points are the fourth root of an index (`JobValue`).
        """
        running = job.running
        if self._ahead or running is None or not self._policy.disruption.preempts_equals:
            return 0
        longer = lost_seconds(self._policy, job, self._now) + self.durations.slower(job)
        held = job.placement.quota_milli if job.placement else 0
        ends = self.durations.until_free(self.durations.gpu_model(job), held) or 0
        wait = max(self._policy.objective.shortest, ends)
        points = self.completion(job, self.durations.gpu_model(job), len(running.replicas))
        times: float = (1 + longer / wait) ** (1 / ROOT)
        return floor(points * (times - 1) + 0.5)

    def slack(self, job: Job, seconds: int) -> int | None:
        """Seconds that a job can wait and still meet its deadline, negative if none; None without one."""
        if job.deadline is None:
            return None
        return int((job.deadline - self._now).total_seconds()) - seconds

    def tariff_points(
        self, job: Job, gpu_model: str | None, replicas: int, *, start: int, seconds: int
    ) -> int:
        """
        Points of tariffs from a job's start to its end or the end of the horizon; equal for all replicas.

            replicas · round( GPUs · Σ_tariffs hours under it · price · currency )
        """
        if not self._tariffs or gpu_model is None:
            return 0
        end = min(start + seconds, self.slots.end)
        cost = 0.0
        for tariff, spans in self._tariffs:
            if not tariff.gpu_models or gpu_model in tariff.gpu_models:
                under = sum(max(0, min(end, ends) - max(start, begins)) for begins, ends in spans)
                cost += under * tariff.price_per_gpu_hour
        gpus = job.request.total_gpu_milli / MILLI
        return replicas * floor(cost * gpus * self._policy.prices.currency / _SECONDS_PER_HOUR + 0.5)
