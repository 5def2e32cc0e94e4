"""Job orders of the rules of the literature as sort keys, and list scheduling in such an order."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.units import MILLI
from gpuplan.planner.simulate.baselines.contenders import counted_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job
    from gpuplan.planner.simulate.baselines.contenders import Contender
    from gpuplan.planner.simulate.baselines.places import PlacedJobs


if TYPE_CHECKING:
    Key: TypeAlias = tuple[float, tuple[bool, datetime, str]]

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
