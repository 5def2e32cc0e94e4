"""Durations: expected durations of jobs, declared or learnt from similar finished jobs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from gpuplan.models.dependency import JobOutcome
from gpuplan.models.timing.gittins_index import (
    index_of_unknown,
    mean_residual,
    mean_residual_of_unknown,
    quantiles,
    seconds_per_completion,
    smoothed_durations,
)
from gpuplan.models.timing.progress import (
    job_after_stop,
    recovering_seconds,
    running_speed_milli,
    served_milli,
    unsaved_seconds,
    working_since,
)
from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import recovery_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

DIGITS: Final = re.compile(r"\d+")
"""Difference between the names of similar jobs, such as run numbers."""

_Kin: TypeAlias = tuple[str, ...]
"""Common attributes of similar jobs: (queue, user, stem of the name), or a prefix of these."""

_Ends: TypeAlias = dict[str | None, tuple[list[int], list[int]]]
"""By GPU model: seconds to ends of running jobs, and the thousandths of GPUs free from then on."""


class DurationSource(StrEnum):
    """Source of an expected duration, the most specific first."""

    DECLARED = "declared"
    SAME_NAME = "same name"
    """Finished jobs of the same queue and user with names that differ only in digits."""
    SAME_USER = "same user"
    """Finished jobs of the same queue and user."""
    SAME_QUEUE = "same queue"
    """Finished jobs of the same queue."""
    DEFAULT = "default"
    """The policy's `weights.default_duration`."""


class LeftBasis(StrEnum):
    """Basis of the remaining time that determines the order of jobs."""

    DECLARED = "declared"
    EXPECTED = "expected"
    """A percentile of the durations of similar jobs, or the policy's default."""
    MEAN = "mean"
    """Mean remaining time of similar jobs, or of jobs of any duration."""
    GITTINS_INDEX = "gittins index"
    """Minimum service per completion of similar jobs, or of jobs of any duration."""


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """An expected duration on a job's fastest GPU model, and its source."""

    seconds: int
    source: DurationSource
    samples: int = 0
    """Number of finished jobs that it was learnt from."""


class _History:
    """Durations of the finished jobs of a snapshot; equal for all policies, so computed once."""

    def __init__(self, snapshot: Snapshot) -> None:
        taken: dict[_Kin, list[int]] = defaultdict(list)
        for each in snapshot.finished:
            if each.outcome is JobOutcome.SUCCEEDED:
                seconds = max(1, int((each.ended_at - each.started_at).total_seconds()))
                for kin, _ in _similarity_keys(each.queue, each.user, each.name):
                    taken[kin].append(seconds)
        self.taken = {kin: sorted(found) for kin, found in taken.items()}
        self.spreads: dict[_Kin, list[int]] = {}
        self.index: dict[tuple[_Kin, int, bool], int | None] = {}
        """`Durations._index` by kin, seconds of attained service, and whether equal jobs take turns."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        found = snapshot.derived.get(cls)
        if found is None:
            found = snapshot.derived[cls] = cls(snapshot)
        return found


class Durations:
    """Expected durations of the jobs of one snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._now = snapshot.taken_at
        self._jobs = snapshot.jobs
        self._nodes = snapshot.cluster.node_by_name
        self._gpus = snapshot.cluster.open_gpus
        self._policy = policy
        self._rules = policy.durations
        self._default = DurationEstimate(max(1, policy.weights.default_duration), DurationSource.DEFAULT)
        self._finished = _History.of(snapshot)
        self._taken = self._finished.taken
        self._ends: dict[frozenset[str] | None, _Ends] = {}
        self._paces: dict[str, tuple[Job, int]] = {}
        """By job name: the job, and its speed."""
        self._last_stopped: tuple[Job, Job] | None = None
        """The last running job that was asked for as pending, and its answer."""

    def expected(self, job: Job) -> DurationEstimate:
        """Duration of a whole job on its fastest GPU model: declared, learnt, or the default."""
        if job.expected_duration is not None:
            return DurationEstimate(max(1, job.expected_duration), DurationSource.DECLARED)
        if (known := self._kin_of(job)) is not None:
            kin, source = known
            found = self._taken[kin]
            rank = -(-self._rules.percentile * len(found) // 100)  # nearest rank
            return DurationEstimate(found[rank - 1], source, len(found))
        return self._default

    def _kin_of(self, job: Job) -> tuple[_Kin, DurationSource] | None:
        """The most similar finished jobs, if there are enough of them."""
        for kin, source in _similarity_keys(job.queue, job.user, job.name) if self._taken else ():
            if len(self._taken.get(kin, ())) >= self._rules.samples:
                return kin, source
        return None

    def until_completion(self, job: Job) -> int:
        """
        Expected seconds of service on its fastest GPU model until a job completes, at least 1.

        For a declared duration, or a job that runs longer than all similar ones, it is the remaining time
        including recovery. Otherwise it is the mean remaining time of similar jobs, or of jobs of any
        duration, which is the best index without preemption (Rothkopf, Management Science 12, 1966). Where
        equal jobs take turns it is the minimum service per completion
        (`gittins_index.seconds_per_completion`).
        """
        if job.expected_duration is not None:
            return self.left(job)
        recovery = 0 if job.running else self._recovery(job)
        attained, known = self.attained(job), self._kin_of(job)
        index = self._index(known[0] if known else None, attained)
        if index is None:
            index = self._overrun(attained)
        return max(1, index + recovery)

    def left(self, job: Job) -> int:
        """Expected seconds of service on its fastest GPU model that a job needs to its end."""
        if job.running is not None:
            return max(1, self.remaining(job) * self.pace(job) // MILLI)
        recovery, work = self.work(job)
        return max(1, recovery + -(-work // MILLI))

    def _overrun(self, seconds: int) -> int:
        """Expected remaining seconds of a job that has run this long, and longer than expected."""
        return max(60, seconds * self._rules.overrun_milli // MILLI)

    def attained(self, job: Job) -> int:
        """Seconds of service on its fastest GPU model so far, including unsaved work."""
        before = job.progress.completed_milli // MILLI if job.progress else 0
        if job.running is None:
            return before
        worked = max(0, int((self._now - working_since(job.running)).total_seconds()))
        return before + worked * self.pace(job) // MILLI

    def served(self, job: Job) -> float:
        """GPU-seconds that a job has held, including lost work."""
        return served_milli(job, self._now) / MILLI

    def _index(self, kin: _Kin | None, attained: int) -> int | None:
        """`mean_residual` or `seconds_per_completion` of a kin or any job; cached by service to 2 digits."""
        turns = self._policy.disruption.preempts_equals
        if kin is None:
            return index_of_unknown(attained) if turns else mean_residual_of_unknown(attained)
        # Two digits: hundreds of jobs then share few indices, and an index changes slowly with service.
        rounded = int(float(f"{attained:.1e}"))
        spreads, index = self._finished.spreads, self._finished.index
        if (key := (kin, rounded, turns)) not in index:
            if kin not in spreads:
                spreads[kin] = smoothed_durations(quantiles(self._taken[kin]))
            index[key] = (seconds_per_completion if turns else mean_residual)(spreads[kin], rounded)
        return index[key]

    def work(self, job: Job) -> tuple[int, int]:
        """
        (recovery, work) of a job from its start on; for a running job, at the time of its start.

        Recovery is in seconds, 0 for a job that has not run before. Work is the duration less progress, in
        thousandths of seconds on its fastest GPU model.
        """
        return self._recovery(job), self._work(job)

    def _work(self, job: Job) -> int:
        declared = job.expected_duration
        whole = self.expected(job).seconds if declared is None else max(1, declared)
        return work_left(self._policy, job, whole)

    def _recovery(self, job: Job) -> int:
        return 0 if job.progress is None else recovery_seconds(self._policy, job)

    def seconds(self, job: Job, gpu_model: str | None) -> int:
        """Seconds from a job's start to its end on a GPU model, rounded up."""
        recovery, work = self.work(job)
        return recovery + -(-work // max(1, job.speed_milli(gpu_model)))

    def remaining(self, job: Job) -> int:
        """
        Expected remaining seconds of a running job at its places, at least 1; 0 if it does not run.

        A job that runs longer than expected continues for the policy's fraction of its run time, at least a
        minute. No job continues beyond its `kill_at`.
        """
        if job.running is None:
            return 0
        since = working_since(job.running)
        worked = max(0, int((self._now - since).total_seconds()))
        left = -(-self._work(job) // self.pace(job)) - worked
        if left <= 0:
            before = job.progress.completed_milli // MILLI if job.progress else 0
            left = self._overrun(before + worked)
        if since > self._now:
            left += recovering_seconds(job, self._now)
        if job.running.kill_at is not None:
            left = min(left, int((job.running.kill_at - self._now).total_seconds()))
        return max(1, left)

    def until_free(
        self, gpu_model: str | None, milli: int, nodes: frozenset[str] | None = None
    ) -> int | None:
        """
        Seconds until running jobs end on this many thousandths of GPUs of a model, as far as is expected.

        Only on some `nodes` if given. None if running jobs hold fewer; what is free now does not count.
        """
        if nodes not in self._ends:
            self._ends[nodes] = self._ends_on(nodes)
        times, freed = self._ends[nodes].get(gpu_model, ([], []))
        number = bisect_left(freed, milli)
        return times[number] if number < len(times) else None

    def _ends_on(self, nodes: frozenset[str] | None) -> _Ends:
        """Ends of running jobs on these nodes, or on all."""
        ends: dict[str | None, list[tuple[int, int]]] = defaultdict(list)
        for job in self._jobs:
            held = sum(
                replica.quota_milli
                for replica in (job.running.replicas if job.running else ())
                if nodes is None or replica.node in nodes
            )
            if held:
                ends[self.gpu_model(job)].append((self.remaining(job), held))
        by_model: _Ends = {}
        for model, found in ends.items():
            found.sort()
            by_model[model] = [at for at, _ in found], list(accumulate(milli for _, milli in found))
        return by_model

    def restart_seconds_now(self, job: Job, gpu_model: str | None) -> int:
        """Seconds to the end of a running job that is stopped now and starts again on a GPU model."""
        going_on = self.remaining(job) - recovering_seconds(job, self._now)
        work = (going_on + unsaved_seconds(job, self._now)) * self.pace(job)
        return recovery_seconds(self._policy, job) + -(-work // max(1, job.speed_milli(gpu_model)))

    def slower(self, job: Job) -> int:
        """
        Seconds that a running job takes longer if it is stopped and resumes on any GPU model that it may use.

            time left · max(0, speed of its places / mean speed − 1)

        with the mean over the GPUs that it may use, of nodes that accept jobs. GPUs of a model become free in
        proportion to their speed, so that the job finds a place with the mean of 1 / speed weighted by speed.
        """
        if job.running is None or len(set(job.gpu_models.values())) < 2:
            return 0
        gpus = {model: count for model, count in self._gpus.items() if model in job.gpu_models}
        total = sum(gpus.values())
        mean = sum(job.speed_milli(model) * count for model, count in gpus.items())
        if not total or (ahead := self.pace(job) * total - mean) <= 0:
            return 0
        return (self.remaining(job) - recovering_seconds(job, self._now)) * ahead // mean

    def again(self, job: Job, gpu_model: str | None) -> int:
        """
        Seconds from start to end of a running job that is stopped now and starts again later on a GPU model.

        At least as long as for the job when pending: a pending job has no `kill_at`.
        """
        return max(self.restart_seconds_now(job, gpu_model), self.seconds(self.stopped(job), gpu_model))

    def resumes_at(self, job: Job) -> datetime | None:
        """Time at which a pending job works if it starts now; None if it has no checkpoint to resume from."""
        recovery, _ = self.work(job)
        return self._now + timedelta(seconds=recovery) if recovery else None

    def stopped(self, job: Job) -> Job:
        """A running job as pending, after it is stopped now, with its saved progress."""
        # It is asked for once for each GPU model, one job after the other.
        if self._last_stopped is None or self._last_stopped[0] is not job:
            self._last_stopped = job, job_after_stop(job, self.pace(job), self._now)
        return self._last_stopped[1]

    def pace(self, job: Job) -> int:
        """Speed of a running job at its places (`progress.running_speed_milli`), computed once."""
        known = self._paces.get(job.name)
        if known is None or known[0] is not job:
            known = self._paces[job.name] = job, running_speed_milli(job, self._nodes)
        return known[1]

    def gpu_model(self, job: Job) -> str | None:
        """The slowest GPU model that a job runs on; None for a pending job or one without GPUs."""
        if job.running is None or not job.request.needs_gpu:
            return None
        nodes = (self._nodes.get(replica.node) for replica in job.running.replicas if replica.gpus)
        models = {node.gpu_model for node in nodes if node and node.gpu_model}
        return min(sorted(models), key=job.speed_milli, default=None)


def work_left(policy: Policy, job: Job, whole: int) -> int:
    """
    Remaining work of a job with this whole duration, in thousandths of seconds of work.

    A job that has already done all of it continues for the policy's fraction of its work, at least a minute.
    """
    if job.progress is None:
        return whole * MILLI
    completed = job.progress.completed_milli
    left = whole * MILLI - completed
    return left if left > 0 else max(60 * MILLI, completed * policy.durations.overrun_milli // MILLI)


def _similarity_keys(queue: str, user: str, name: str) -> tuple[tuple[_Kin, DurationSource], ...]:
    return (
        ((queue, user, DIGITS.sub("", name)), DurationSource.SAME_NAME),
        ((queue, user), DurationSource.SAME_USER),
        ((queue,), DurationSource.SAME_QUEUE),
    )
