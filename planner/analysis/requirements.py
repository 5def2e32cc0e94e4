"""Capacity that a change of a job requires to be free, by node."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.free_resources import charged_cpu_memory
from gpuplan.models.plan.precondition import Free
from gpuplan.models.units import print_milli

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.placement import GpuShare, MigSlice, Replica
    from gpuplan.planner.analysis.job_changes import JobChange

# Each name contains a space, so that it differs from all names of countable resources.
_OWN_FIELDS: Final = ("cpu milli", "memory mib", "disk mib")


def free_preconditions(change: JobChange, cluster: Cluster) -> tuple[Free, ...]:
    """Return what a job takes on each node beyond what it gives up there itself, sorted by node."""
    taken: dict[str, list[Replica]] = defaultdict(list)
    left: dict[str, list[Replica]] = defaultdict(list)
    for replica in change.arriving:
        taken[replica.node].append(replica)
    for replica in change.leaving:
        left[replica.node].append(replica)
    return tuple(
        _free(node, change, taken=taken[node], left=left.get(node, []), cluster=cluster)
        for node in sorted(taken)
    )


def _free(
    node: str, change: JobChange, *, taken: list[Replica], left: list[Replica], cluster: Cluster
) -> Free:
    needs = _amounts(change, taken, cluster)
    needs.subtract(_amounts(change, left, cluster))
    cpu_milli, memory_mib, disk_mib = (max(0, needs.pop(name, 0)) for name in _OWN_FIELDS)
    return Free(
        node=node,
        gpus=_new_gpus(taken, left),
        cpu_milli=print_milli(cpu_milli),
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        resources={name: amount for name, amount in sorted(needs.items()) if amount > 0},
    )


def _amounts(change: JobChange, replicas: Iterable[Replica], cluster: Cluster) -> Counter[str]:
    """Demand of replicas except for their GPUs."""
    amounts: Counter[str] = Counter()
    for replica in replicas:
        own = (*charged_cpu_memory(replica, change.job.qos, cluster), replica.disk_mib)
        amounts.update(dict(zip(_OWN_FIELDS, own, strict=True)))
        amounts.update(replica.resources)
    return amounts


def _new_gpus(taken: Iterable[Replica], left: Iterable[Replica]) -> tuple[GpuShare | MigSlice, ...]:
    """The GPUs, shares and MIG instances taken that the job does not give up at the same time."""
    own = Counter(held for replica in left for held in replica.gpus)
    found = []
    for replica in taken:
        for held in replica.gpus:
            if own[held]:
                own[held] -= 1
            else:
                found.append(held)
    return tuple(found)
