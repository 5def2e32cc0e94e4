"""Contenders: jobs that compete for GPUs; their orders in the literature; list scheduling in an order."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from gpuplan.models.timing.durations import Durations
from gpuplan.models.units import MILLI
from gpuplan.solvers.exact.max_min import max_min_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.baselines.places import PlacedJobs

    Key: TypeAlias = tuple[float, tuple[bool, datetime, str]]


@dataclass(frozen=True, slots=True)
class Contender:
    """A running job, or a pending job that may start."""

    job: Job
    gpu_milli: int
    """Thousandths of GPUs that it holds, or requests at full size."""
    whole: int
    """Expected total duration in seconds, on its fastest GPU model."""
    left: int
    """Expected remaining seconds; of a pending job, from a start now on its fastest GPU model."""
    attained: int
    """Attained service in thousandths of GPUs times seconds."""
    age: int
    """Seconds since its submission."""
    seconds: Callable[[str | None], int]
    """Expected duration of a pending job on a GPU model."""

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    @property
    def running(self) -> bool:
        """True if the job is running."""
        return self.job.running is not None

    @property
    def first_come(self) -> tuple[datetime, str]:
        """Submission time, then name."""
        return self.job.submitted_at, self.job.name

    @property
    def arrival(self) -> tuple[bool, datetime, str]:
        """Tie-break: running jobs first, then by submission time."""
        return not self.running, *self.first_come


def contenders(snapshot: Snapshot, policy: Policy, attained: Mapping[str, int]) -> tuple[Contender, ...]:
    """
    Running jobs of a snapshot and those that may start, by submission time.

    Jobs missing in `attained` have 0. Held jobs and jobs in their back-off after a failure may not start.
    """
    durations = Durations(snapshot, policy)
    found = (
        _contender(job, snapshot, durations, attained.get(job.name, 0))
        for job in snapshot.jobs
        if job.running is not None or not (job.withheld or _backs_off(job, snapshot.taken_at))
    )
    return tuple(sorted(found, key=lambda each: each.first_come))


def _backs_off(job: Job, now: datetime) -> bool:
    return job.retry_at is not None and job.retry_at > now


def _contender(job: Job, snapshot: Snapshot, durations: Durations, attained: int) -> Contender:
    def seconds(gpu_model: str | None) -> int:
        return max(1, durations.seconds(job, gpu_model))

    placed = job.placement
    milli = job.request.total_gpu_milli * job.gang.maximum if placed is None else placed.quota_milli
    return Contender(
        job,
        gpu_milli=milli,
        whole=durations.expected(job).seconds,
        left=durations.remaining(job) if job.running else seconds(None),
        attained=attained,
        age=job.waiting_seconds(snapshot.taken_at),
        seconds=seconds,
    )


def is_preemptible(contender: Contender) -> bool:
    """True if the job is preemptible."""
    return contender.job.preemptible


def may_yield_turn(contender: Contender) -> bool:
    """
    True if the job is preemptible, and has a checkpoint since its last start.

    Without this condition, jobs that take turns would lose all work of each turn.
    """
    running = contender.job.running
    return is_preemptible(contender) and running is not None and running.last_checkpoint_at is not None


def counted_gpus(contender: Contender) -> float:
    """GPUs of a job, at least a thousandth, so that jobs without GPUs have an order too."""
    return max(1, contender.gpu_milli) / MILLI


_FIRST_LEVEL: Final = MILLI * 3600
"""Bound of attained service in the first queue of LAS: a GPU-hour; it doubles with each further queue."""


def shortest(each: Contender) -> Key:
    """SJF: the shortest expected duration."""
    return each.whole, each.arrival


def shortest_remaining(each: Contender) -> Key:
    """SRPT: the shortest expected remaining time."""
    return each.left, each.arrival


def smallest_remaining_service(each: Contender) -> Key:
    """SRSF: the least remaining time times GPUs."""
    return each.left * counted_gpus(each), each.arrival


def longest_remaining(each: Contender) -> Key:
    """LRPT: the longest expected remaining time."""
    return -each.left, each.arrival


def least_attained(each: Contender) -> Key:
    """
    LAS: the least attained service, GPUs times time, in queues with doubling bounds.

    Within a queue, running jobs come first, then the earliest submissions. As in Tiresias, this prevents jobs
    from preempting each other repeatedly.
    """
    return max(0, math.ceil(math.log2(max(1, each.attained) / _FIRST_LEVEL))), each.arrival


def least_slack(each: Contender) -> Key:
    """
    Least slack: the largest finish-time fairness ρ if the job runs from now on.

    ρ = (age + left) / (duration · contention), where contention is equal for all jobs at one time.
    """
    return -(each.age + each.left) / max(1, each.whole), each.arrival


def by_dominant_share(
    places: PlacedJobs, jobs: Sequence[Contender], waiting: Sequence[Contender]
) -> Iterator[Contender]:
    """
    DRF: yields, repeatedly, the first job of the queue with the least dominant share.

    A queue's dominant share is its largest part of the cluster's GPUs, CPU or memory. The caller may start
    the yielded job; its resources then count for its queue.
    """
    totals = _totals(places.cluster)
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for each in jobs:
        if each.job.placement is not None:
            _add(held[each.job.queue], _asked(each.job, len(each.job.placement.replicas)))
    left: dict[str, list[Contender]] = defaultdict(list)
    for each in reversed(waiting):
        left[each.job.queue].append(each)
    while left:
        queue = min(left, key=lambda name: (_dominant(held[name], totals), left[name][-1].first_come))
        first = left[queue].pop()
        if not left[queue]:
            del left[queue]
        yield first
        if (number := places.number_of.get(first.name)) is not None:
            _add(held[queue], _asked(first.job, len(places.ledger.placed[number].sites)))


def _asked(job: Job, replicas: int) -> list[int]:
    """Thousandths of GPUs, CPU and memory of a number of replicas of a job."""
    request = job.request
    return [amount * replicas for amount in (request.total_gpu_milli, request.cpu_milli, request.memory_mib)]


def _add(held: list[int], more: list[int]) -> None:
    held[:] = [one + other for one, other in zip(held, more, strict=True)]


def _dominant(held: list[int], totals: list[int]) -> float:
    return max(amount / total if total else 0.0 for amount, total in zip(held, totals, strict=True))


def _totals(cluster: Cluster) -> list[int]:
    nodes = [node for node in cluster.nodes if node.ready]
    return [
        sum(node.gpu_count for node in nodes) * MILLI,
        sum(node.cpu_milli for node in nodes),
        sum(node.memory_mib for node in nodes),
    ]


# List scheduling: jobs are placed in a given order if there is room, with or without preemption.


def start_in_order(places: PlacedJobs, order: Iterable[Contender], *, skipping: bool) -> None:
    """
    Start pending jobs in order; without `skipping`, stop at the first job without room.

    A job that would not fit even without the other jobs does not block the jobs after it.
    """
    for each in order:
        if each.running or each.name in places.number_of or places.start(each.name):
            continue
        if not skipping and places.fits_alone(each.name):
            return


def serve_in_order(
    places: PlacedJobs, order: Sequence[Contender], may_stop: Callable[[Contender], bool]
) -> None:
    """
    Place each job as if the jobs after it in the order did not exist, except those that may not stop.

    A running job stays in place unless an earlier job needs its place; it then continues elsewhere if there
    is room. A job without room is skipped.
    """
    for position, each in enumerate(order):
        if each.name in places.number_of or places.start(each.name):
            continue
        behind = [
            other
            for other in order[position + 1 :]
            if other.running and other.name in places.number_of and may_stop(other)
        ]
        _make_room(places, each, behind)


def _make_room(places: PlacedJobs, wanting: Contender, behind: list[Contender]) -> None:
    """Take off the last jobs in order until a job fits, and put back jobs at places that it does not need."""
    job_class = places.class_of(wanting.name)
    if job_class is None:
        return
    needed = job_class.shape.quota_milli * job_class.minimum
    if places.free_milli + sum(each.gpu_milli for each in behind) < needed:
        return
    gone = []
    while behind:
        gone.append(behind.pop())
        places.remove(gone[-1].name)
        if places.free_milli >= needed and places.start(wanting.name):
            break
    # Earlier jobs in the order return first; if the job did not fit, all places are free again.
    for each in reversed(gone):
        places.restore(each.name)


def max_min(places: PlacedJobs, jobs: Sequence[Contender]) -> None:
    """
    Serve by share ÷ received part of time, the largest first, as Gavel does in each round.

    The received part is attained service ÷ (GPUs · age). A job tries the GPU model with its largest share
    first. Jobs without GPUs, or without a model that fits them, come last.
    """
    models, capacity = _capacity(places)
    known = [(each, job_class) for each in jobs if (job_class := places.class_of(each.name)) is not None]
    speeds = [_speeds(each, job_class, models, capacity) for each, job_class in known]
    sharing = [index for index, speed in enumerate(speeds) if any(speed)]
    shares: dict[str, list[float]] = {}
    if sharing:
        gpus = np.array([counted_gpus(known[index][0]) for index in sharing])
        found = max_min_shares(np.array([speeds[index] for index in sharing]), gpus, np.array(capacity))
        shares = {known[index][0].name: row for index, row in zip(sharing, found.tolist(), strict=True)}

    def urgency(each: Contender) -> float:
        given = max(1, each.attained) / max(1, each.gpu_milli * max(1, each.age))
        return sum(shares.get(each.name, ())) / given

    for name, parts in shares.items():
        places.prefer(name, dict(zip(models, parts, strict=True)))
    serve_in_order(places, sorted(jobs, key=lambda each: (-urgency(each), each.arrival)), may_yield_turn)


def _capacity(places: PlacedJobs) -> tuple[list[str], list[float]]:
    """GPU models, and the number of usable GPUs of each."""
    total: dict[str, int] = {}
    for group in places.problem.groups:
        if group.gpu_model is not None and group.pool is None:
            milli = sum(sum(places.problem.nodes[node].gpus) for node in group.nodes)
            total[group.gpu_model] = total.get(group.gpu_model, 0) + milli
    models = sorted(model for model, milli in total.items() if milli)
    return models, [total[model] / MILLI for model in models]


def _speeds(
    each: Contender, job_class: JobClass, models: Sequence[str], capacity: Sequence[float]
) -> list[float]:
    """Speed of a job on each model, relative to its fastest; 0 if it cannot run there."""
    possible = {option.gpu_model for option in job_class.options}
    return [
        each.job.speed_milli(model) / MILLI if model in possible and counted_gpus(each) <= gpus else 0.0
        for model, gpus in zip(models, capacity, strict=True)
    ]
