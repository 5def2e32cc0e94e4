"""Quota usage: thousandths of GPUs by queue and GPU model, plain sums without limits or lending."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.mig import profile_milli
from gpuplan.models.placement import GpuShare
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.placement import MigSlice, Placement, Replica
    from gpuplan.models.queue import Queue


def quota_milli(held: GpuShare | MigSlice) -> int:
    """Quota usage of a part of a GPU; a MIG profile of unknown form counts as a whole GPU."""
    if isinstance(held, GpuShare):
        return held.milli
    try:
        return profile_milli(held.profile)
    except ValueError:
        return MILLI


def held_gpu_milli(replica: Replica) -> int:
    """Thousandths of GPUs that a replica holds."""
    return sum(map(quota_milli, replica.gpus)) if replica.mig_slices else replica.quota_milli


def usage_by_queue_and_model(
    placements: Iterable[Placement], jobs: Mapping[str, Job], models: Mapping[str, str]
) -> dict[tuple[str, str], int]:
    """
    Thousandths of GPUs that the jobs directly in each queue hold on each GPU model.

    `models` has the GPU model of each node that has GPUs, by name.
    """
    usage: dict[tuple[str, str], int] = defaultdict(int)
    for placement in placements:
        if (job := jobs.get(placement.job)) is None:
            continue
        for replica in placement.replicas:
            if (model := models.get(replica.node)) is not None:
                usage[job.queue, model] += held_gpu_milli(replica)
    return usage


def usage_of_resource(usage: Mapping[tuple[str, str], int], resource: str) -> dict[str, int]:
    """Usage by queue, of one GPU model or of all."""
    total: dict[str, int] = defaultdict(int)
    for (queue, model), milli in usage.items():
        if resource in (ALL_MODELS, model):
            total[queue] += milli
    return total


def subtree_totals(queues: tuple[Queue, ...], own: Mapping[str, int]) -> dict[str, int]:
    """Sums over each queue and all queues below it, given the amount directly in each."""
    total = {queue.name: own.get(queue.name, 0) for queue in queues}
    for queue in children_first(queues):
        if queue.parent is not None:
            total[queue.parent] += total[queue.name]
    return total


def children_first(queues: tuple[Queue, ...]) -> list[Queue]:
    """The queues in an order with children before parents."""
    children: dict[str | None, list[Queue]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue)
    parents_first = list(children[None])
    for queue in parents_first:  # grows as it is walked
        parents_first.extend(children[queue.name])
    return parents_first[::-1]
