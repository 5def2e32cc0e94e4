"""
Quota usage by queue and resource, plain sums without limits or lending.

A resource is a GPU model, in thousandths of GPUs, `CPUS` in thousandths of cores, or `MEMORY` in MiB.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.mig import profile_milli
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, Queue
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.job import Job


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


def held_of_resource(replica: Replica, gpu_model: str | None, resource: str) -> int:
    """What a replica on a node with GPUs of a model, or none, holds of one resource, or of all GPUs."""
    if resource == CPUS:
        return replica.cpu_milli
    if resource == MEMORY:
        return replica.memory_mib
    return held_gpu_milli(replica) if gpu_model and resource in (ALL_MODELS, gpu_model) else 0


def usage_by_queue_and_resource(
    placements: Iterable[Placement], jobs: Mapping[str, Job], models: Mapping[str, str]
) -> dict[tuple[str, str], int]:
    """
    What the jobs directly in each queue hold of each resource.

    `models` has the GPU model of each node that has GPUs, by name.
    """
    usage: dict[tuple[str, str], int] = defaultdict(int)
    for placement in placements:
        if (job := jobs.get(placement.job)) is None:
            continue
        for replica in placement.replicas:
            if (model := models.get(replica.node)) is not None:
                usage[job.queue, model] += held_gpu_milli(replica)
            usage[job.queue, CPUS] += replica.cpu_milli
            usage[job.queue, MEMORY] += replica.memory_mib
    return usage


def usage_of_resource(usage: Mapping[tuple[str, str], int], resource: str) -> dict[str, int]:
    """Usage by queue, of one resource or of all GPUs."""
    total: dict[str, int] = defaultdict(int)
    for (queue, each), amount in usage.items():
        if resource == each or (resource == ALL_MODELS and each not in (CPUS, MEMORY)):
            total[queue] += amount
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
