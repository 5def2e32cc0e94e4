"""
Quota usage by queue and resource, plain sums without limits or lending; and the limits of queues.

A resource is a GPU model, in thousandths of GPUs, `CPUS` in thousandths of cores, or `MEMORY` in MiB.
"""

from __future__ import annotations

from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from gpuplan.models.mig import profile_milli
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, AnyQuota, Queue
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
    parts = replica.gpus
    if len(parts) == 1 and isinstance(share := parts[0], GpuShare):
        return share.milli
    return sum(map(quota_milli, parts)) if replica.mig_slices else replica.quota_milli


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


def kept_and_limit(tree: list[Queue], resource: str) -> tuple[dict[str, float], dict[str, float]]:
    """Quota that each queue does not lend, and its limit; infinite without a limit."""
    lent: dict[str | None, list[float]] = defaultdict(list)  # by children, to the key
    kept: dict[str, float] = {}
    limit: dict[str, float] = {}
    for queue in tree:
        quota, from_children = _quota(queue, resource), lent[queue.name]
        if quota is None:
            subtree = sum(from_children) if from_children else inf
            lending, borrowing, kept[queue.name] = inf, inf, 0
        else:
            # A child without a limit has no quota to lend.
            subtree = quota.nominal + sum(part for part in from_children if part < inf)
            lending = inf if quota.lending_limit is None else quota.lending_limit
            borrowing = inf if quota.borrowing_limit is None else quota.borrowing_limit
            kept[queue.name] = max(0, subtree - lending)
        lent[queue.parent].append(min(subtree, lending))
        limit[queue.name] = subtree if queue.parent is None else subtree + borrowing
    return kept, limit


def _quota(queue: Queue, resource: str) -> AnyQuota | None:
    if resource == CPUS:
        return queue.cpus
    if resource == MEMORY:
        return queue.memory
    return queue.quota if resource == ALL_MODELS else queue.gpu_models.get(resource)
