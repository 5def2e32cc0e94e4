"""Record of each job's course, and the scorecard computed from all of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import fsum
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import MILLI
from gpuplan.planner.simulate.outcome import Distribution, Scorecard, ScoreValue
from gpuplan.planner.simulate.simulated_job import NOTHING, GpuTimeFlow, JobEventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from gpuplan.models.calendar import Tariff
    from gpuplan.models.job import Job
    from gpuplan.planner.simulate.outcome import EpochFigures
    from gpuplan.planner.simulate.simulated_job import IntervalOutcome, JobEvent
    from gpuplan.planner.simulate.trace import Trace
    from gpuplan.planner.simulate.world import Elapsed, SimulatedWorld


SHORTEST: Final = 10
"""Lower limit of a job's duration in seconds, in slowdown and finish-time fairness."""

SMALLEST: Final = 100
"""Lower limit of a job's GPUs in its worth, in thousandths."""

_RESTARTS: Final = (
    JobEventKind.PREEMPTED,
    JobEventKind.INTERRUPTED,
    JobEventKind.MOVED,
    JobEventKind.RESIZED,
)

_SECONDS_PER_HOUR: Final = 3600
_GPU_HOUR: Final = MILLI * _SECONDS_PER_HOUR


@dataclass(slots=True)
class JobLife:
    """One scored job from its submission on; `duration` is the true one."""

    job: Job
    duration: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    killed: bool = False
    stops: list[tuple[datetime, datetime | None]] = field(default_factory=list)
    """Each time that it was stopped, and started again; None where it has not."""


@dataclass
class ScoreKeeper:
    """Collects the data for the scores during a run."""

    trace: Trace
    world: SimulatedWorld
    """The initial world."""
    flow: GpuTimeFlow = NOTHING
    counts: Counter[JobEventKind] = field(default_factory=Counter)
    lost: int = 0
    """In thousandths of GPUs times seconds, as is `idle`."""
    idle: int = 0
    tariffs: float = 0.0
    ends: dict[str, datetime] = field(default_factory=dict)
    """End of each job, scored or not."""
    lives: dict[str, JobLife] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, task in self.world.tasks.items():
            if task.job.running is None and not task.job.withheld:
                self.lives[name] = JobLife(task.job, task.need // (MILLI * task.job.gang.maximum))
        self._coming = {each.job.name: each for each in self.trace.coming}

    def record(self, elapsed: Elapsed) -> None:
        """Record the events and the flow of a time step."""
        self.flow += elapsed.flow
        for each in elapsed.happened:
            self.counts[each.kind] += 1
            if each.kind is JobEventKind.SUBMITTED:
                coming = self._coming[each.job]
                self.lives[each.job] = JobLife(coming.job, coming.duration)
            if each.held is not None:
                self._charge(each.job, each.held, each.at)
            self._note_stop(each)
            if each.kind in (JobEventKind.FINISHED, JobEventKind.KILLED):
                self.ends[each.job] = each.at
                if (life := self.lives.get(each.job)) is not None:
                    life.ended_at, life.killed = each.at, each.kind is JobEventKind.KILLED

    def scorecard(self, world: SimulatedWorld, epochs: Sequence[EpochFigures]) -> Scorecard:
        """Scores of a run that ended with this world."""
        for name, task in world.tasks.items():
            if task.interval is not None:
                self._charge(name, task.ended(world.now), world.now)
        lives = list(self.lives.values())
        due = [life for life in lives if life.job.deadline is not None and life.job.deadline <= world.now]
        over = [life for life in lives if not life.killed]
        hours = (world.now - world.began).total_seconds() / _SECONDS_PER_HOUR
        finished = sum(life.ended_at is not None for life in over)
        running = sum(name in self.lives for name, task in world.tasks.items() if task.interval is not None)
        jains = [each.jain_index for each in epochs]
        queues = [each.waiting for each in epochs]
        finish_time_fairness_max, unfair_share = self._fairness(world, over)
        return Scorecard(
            jobs=len(lives),
            finished=finished,
            killed=len(lives) - len(over),
            running=running,
            waiting=len(over) - finished - running,
            held=sum(task.job.withheld and task.interval is None for task in world.tasks.values()),
            not_submitted=len(world.coming),
            finished_per_hour=round(finished / hours, 3) if hours else 0.0,
            wait=distribution(_until(life, life.started_at, world.now) for life in lives),
            worth_wait=_worth_wait(lives, world.now),
            completion=distribution(_until(life, life.ended_at, world.now) for life in over),
            slowdown=distribution(_slowdown(life, world.now) for life in over),
            makespan=_makespan(lives, world),
            finish_time_fairness_max=finish_time_fairness_max,
            unfair_share=unfair_share,
            gpu_utilization=round(self.flow.held / self.flow.usable, 6) if self.flow.usable else 0.0,
            gpu_hours=round(self.flow.held / _GPU_HOUR, 3),
            lost_gpu_hours=round(self.lost / _GPU_HOUR, 3),
            idle_gpu_hours=round(self.idle / _GPU_HOUR, 3),
            queue_mean=round(fsum(queues) / len(queues), 3),
            queue_max=max(queues),
            jain_mean=round(fsum(jains) / len(jains), 6),
            jain_min=min(jains),
            preemptions=self.counts[JobEventKind.PREEMPTED],
            interruptions=self.counts[JobEventKind.INTERRUPTED],
            migrations=self.counts[JobEventKind.MOVED],
            resizes=self.counts[JobEventKind.RESIZED],
            restarts=sum(self.counts[kind] for kind in _RESTARTS),
            deadline_jobs=len(due),
            deadline_misses=sum(_misses(life) for life in due),
            cost=round(self.flow.cost + self.tariffs, 2),
            planning_seconds=round(fsum(each.seconds for each in epochs), 3),
            planning_seconds_mean=round(fsum(each.seconds for each in epochs) / len(epochs), 6),
            planning_seconds_max=max(each.seconds for each in epochs),
        )

    def _fairness(
        self, world: SimulatedWorld, over: Sequence[JobLife]
    ) -> tuple[ScoreValue | None, ScoreValue | None]:
        """(largest ρ, part of the jobs that are unfairly late); None without jobs with GPUs or ended ones."""
        began = self.world.now
        lives = [life for life in over if demand_of(life.job)]
        ended = [(life, life.ended_at) for life in lives if life.ended_at is not None]
        if not lives:
            return None, None
        start = (task.job for task in self.world.tasks.values() if task.job.running or not task.job.withheld)
        jobs = [*start, *(each.job for name, each in self._coming.items() if name in self.lives)]
        stays = ((max(began, job.submitted_at), self.ends.get(job.name), demand_of(job)) for job in jobs)
        seconds = (world.now - began).total_seconds()
        contention = Contention(stays, self.flow.usable / seconds if seconds else 0.0)
        found = []
        for life, end in ended:
            submitted = life.job.submitted_at
            share = max(1.0, contention.mean(max(began, submitted), end))
            found.append((end - submitted).total_seconds() / (max(SHORTEST, life.duration) * share))
        at_least = len(ended) < len(lives)
        unfair = sum(each > UNFAIR for each in found) / len(lives)
        worst = ScoreValue(value=round(max(found), 6), at_least=at_least) if found else None
        return worst, ScoreValue(value=round(unfair, 6), at_least=at_least)

    def _note_stop(self, event: JobEvent) -> None:
        """Record that a job waits again, or that such a wait ends."""
        if (life := self.lives.get(event.job)) is None:
            return
        if event.kind in (JobEventKind.PREEMPTED, JobEventKind.INTERRUPTED):
            life.stops.append((event.at, None))
        elif event.kind is JobEventKind.STARTED and life.stops and life.stops[-1][1] is None:
            life.stops[-1] = (life.stops[-1][0], event.at)

    def _charge(self, job: str, held: IntervalOutcome, at: datetime) -> None:
        """Record lost and idle GPU time and tariffs of an ended stretch, from the simulation's start on."""
        # The job did not start if it was stopped before its nodes were ready.
        if held.interval.begins <= at and (life := self.lives.get(job)) is not None:
            life.started_at = life.started_at or held.interval.begins
        gpu_milli = held.interval.gpu_milli
        begins = max(held.interval.begins, self.world.now)
        seconds = int((held.until - begins).total_seconds())
        self.lost += gpu_milli * min(held.lost, seconds)
        self.idle += gpu_milli * held.idle
        if held.interval.gpu_model is None or seconds <= 0:
            return
        for tariff in self.world.cluster.tariffs:
            if not tariff.gpu_models or held.interval.gpu_model in tariff.gpu_models:
                under = _under(tariff, begins, seconds)
                self.tariffs += gpu_milli * under * tariff.price_per_gpu_hour / _GPU_HOUR


def _makespan(lives: Iterable[JobLife], world: SimulatedWorld) -> ScoreValue | None:
    """Seconds from the start to the end of the last job, or until now if some are left."""
    ends = [life.ended_at for life in lives]
    if not ends:
        return None
    last = max(world.now if at is None else at for at in ends)
    at_least = bool(world.coming) or None in ends
    return ScoreValue(value=(last - world.began).total_seconds(), at_least=at_least)


def _under(tariff: Tariff, begins: datetime, seconds: int) -> int:
    """Seconds of a span in which a tariff applies."""
    spans = tariff.spans(begins, seconds)
    return sum(max(0, min(end, seconds) - max(first, 0)) for first, end in spans)


def _until(life: JobLife, instant: datetime | None, now: datetime) -> ObservedJob:
    """Seconds from the submission to `instant`, or, censored, until now if that is None."""
    reached = now if instant is None else instant
    return ObservedJob(max(0.0, (reached - life.job.submitted_at).total_seconds()), instant is None)


def _worth_wait(lives: Iterable[JobLife], now: datetime) -> ScoreValue | None:
    waited = [(_worth(life.job), _until(life, life.started_at, now)) for life in lives]
    if not (whole := sum(worth for worth, _ in waited)):
        return None
    mean = fsum(worth * each.value for worth, each in waited) / whole
    return ScoreValue(value=round(mean, 6), at_least=any(worth and each.censored for worth, each in waited))


def _worth(job: Job) -> int:
    """Relative weight of a pending job, independent of the runs' policies."""
    gpu_milli = max(SMALLEST, job.request.total_gpu_milli * job.gang.maximum)
    return job.weight_milli * (1 + job.priority) * gpu_milli


def _slowdown(life: JobLife, now: datetime) -> ObservedJob:
    completion = _until(life, life.ended_at, now)
    ratio = completion.value / max(SHORTEST, life.duration)
    return ObservedJob(max(1.0, ratio), completion.censored)


def _misses(life: JobLife) -> bool:
    deadline = life.job.deadline
    return deadline is not None and (life.killed or life.ended_at is None or life.ended_at > deadline)


# Contention: demand for GPUs relative to the cluster's GPUs while a job is in the system, for fairness.
#
# Finish-time fairness (Mahajan et al., Themis, NSDI 2020) compares a job's time in the system with its time
# in a dedicated cluster that is smaller by the average contention N. Here N is averaged over the job's own
# stay, as in Shockwave (Zheng et al., NSDI 2023), and is counted in GPUs, since jobs differ in size:
#
#     ρ_j = (end_j − submitted_j) / (exclusive duration_j · max(1, N_j))
#     N_j = mean over the stay of Σ_k GPUs that the jobs k then in the system ask for / GPUs of the cluster
#
# A job with ρ > 1 would have finished earlier with an equal share.


UNFAIR: Final = 1.05
"""A job with a ρ above this counts as unfairly treated (Shockwave's threshold)."""


def demand_of(job: Job) -> int:
    """Thousandths of GPUs that a job requests at full size."""
    return job.request.total_gpu_milli * job.gang.maximum


class Contention:
    """Demand for GPUs over time, from the arrival and departure of each job."""

    def __init__(self, stays: Iterable[tuple[datetime, datetime | None, int]], gpu_milli: float) -> None:
        """`stays` are (arrival, departure, demand) of jobs; `gpu_milli` is the average capacity."""
        changes: dict[datetime, int] = {}
        for came, gone, demand in stays:
            changes[came] = changes.get(came, 0) + demand
            if gone is not None:
                changes[gone] = changes.get(gone, 0) - demand
        self._gpu_milli = gpu_milli
        self._times = sorted(changes)
        self._demand = list(accumulate(changes[at] for at in self._times))
        spans = ((later - at).total_seconds() for at, later in pairwise(self._times))
        asked = (demand * span for demand, span in zip(self._demand, spans, strict=False))
        self._before = list(accumulate(asked, initial=0.0))

    def mean(self, begin: datetime, end: datetime) -> float:
        """N between two times; 0 without GPUs."""
        seconds = (end - begin).total_seconds()
        if seconds <= 0 or self._gpu_milli <= 0:
            return 0.0
        return (self._asked(end) - self._asked(begin)) / seconds / self._gpu_milli

    def _asked(self, until: datetime) -> float:
        """Demand up to a time, in thousandths of GPUs times seconds."""
        index = bisect_right(self._times, until) - 1
        if index < 0:
            return 0.0
        return self._before[index] + self._demand[index] * (until - self._times[index]).total_seconds()


# Distribution of a figure over jobs, with censored values of jobs not over at the simulation's end.


@dataclass(frozen=True, slots=True, order=True)
class ObservedJob:
    """The figure of one job."""

    value: float
    censored: bool = False
    """True if `value` is a lower bound: the simulation ended before the value was known."""


def distribution(observed: Iterable[ObservedJob]) -> Distribution | None:
    """
    Mean and percentiles by nearest rank; None without jobs.

    A censored job counts with its present value. A percentile is exact if no censored job is at or below it,
    since all other values stay above it. Otherwise it is a lower bound.
    """
    ordered = sorted(observed)
    if not ordered:
        return None

    def percentile(percent: int) -> ScoreValue:
        lower = ordered[: -(-percent * len(ordered) // 100)]
        return ScoreValue(value=round(lower[-1].value, 6), at_least=any(each.censored for each in lower))

    mean = fsum(each.value for each in ordered) / len(ordered)
    return Distribution(
        mean=ScoreValue(value=round(mean, 6), at_least=any(each.censored for each in ordered)),
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
    )
