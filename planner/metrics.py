"""The cluster in figures: each function is one figure of a plan, its docstring the formula."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import fsum
from typing import TYPE_CHECKING, Final

from planner.changes import Deed
from planner.holdings import holdings_of
from planner.models.occupancy import free_capacity
from planner.models.plan import JobCounts, Metrics
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from planner.changes import Changes
    from planner.holdings import Holdings
    from planner.models.cluster import Cluster
    from planner.models.occupancy import NodeFree
    from planner.models.placement import Placement, Replica
    from planner.models.snapshot import Snapshot

REFERENCE_GPUS: Final = 8
"""Whole GPUs on one node that the reference request of the fragmentation ratio asks for."""


def measure(changes: Changes) -> Metrics:
    """All figures once a target is done."""
    snapshot, target, cluster = changes.snapshot, changes.target, changes.cluster
    placements = target.placements
    deeds = Counter(change.deed for change in changes.jobs)
    return Metrics(
        gpu_allocation_ratio=_allocated_part(cluster, changes.holdings),
        gpu_allocation_ratio_before=_allocated_part(snapshot.cluster, holdings_of(snapshot)),
        fragmentation_ratio=fragmentation_ratio(cluster, changes.free),
        jain_index=jain_index(snapshot, placements),
        hourly_cost=hourly_cost(cluster),
        hourly_cost_before=hourly_cost(snapshot.cluster),
        jobs=JobCounts(
            running=len(placements),
            started=deeds[Deed.START],
            waiting=len(snapshot.jobs) - len(placements),
            preempted=deeds[Deed.PREEMPT],
            planned=len(target.planned),
            promised=sum(each.promised for each in target.planned),
        ),
    )


def allocation_ratio(cluster: Cluster, placements: Iterable[Placement]) -> float:
    """
    Allocated part of the GPUs that can be used: the healthy ones of ready nodes.

        Σ_g min(1, allocated(g)) / |usable GPUs|

    A MIG slice counts with its compute slices out of 7. Without usable GPUs the ratio is 0.
    """
    used, usable = gpus_in_use(cluster, placements)
    return _ratio(used.total(), usable.total())


def _allocated_part(cluster: Cluster, holdings: Holdings) -> float:
    used, usable = _in_use(cluster, holdings.free, holdings.replicas)
    return _ratio(used.total(), usable.total())


def gpus_in_use(cluster: Cluster, placements: Iterable[Placement]) -> tuple[Counter[str], Counter[str]]:
    """Thousandths of GPUs by model, on healthy GPUs of ready nodes: those allocated, and all."""
    placements = tuple(placements)
    there: dict[str, list[Replica]] = defaultdict(list)
    for placement in placements:
        for replica in placement.replicas:
            there[replica.node].append(replica)
    return _in_use(cluster, free_capacity(cluster.nodes, placements), there.__getitem__)


def _in_use(
    cluster: Cluster, free: Mapping[str, NodeFree], replicas: Callable[[str], Iterable[Replica]]
) -> tuple[Counter[str], Counter[str]]:
    used, usable = Counter[str](), Counter[str]()
    for node in cluster.nodes:
        if (gpus := node.gpus) is None or not node.ready:
            continue
        left = free[node.name]
        if not gpus.details and not left.mig_used:
            usable[gpus.model] += MILLI * gpus.count
            used[gpus.model] += MILLI * gpus.count - sum([milli for milli in left.gpu_milli if milli > 0])
            continue
        # Details are of few GPUs: all others are healthy.
        faulty = {gpu.index for gpu in gpus.details if not gpu.healthy and gpu.index < gpus.count}
        usable[gpus.model] += MILLI * (gpus.count - len(faulty))
        used[gpus.model] += _allocated(replicas(node.name), gpus.count, faulty)
    return used, usable


def _allocated(replicas: Iterable[Replica], count: int, faulty: Collection[int]) -> int:
    """Thousandths that replicas hold of a node's healthy GPUs, of each no more than there is."""
    held = Counter[int]()
    for replica in replicas:
        for index, milli in replica.milli_by_gpu.items():
            held[index] += milli
    return sum(min(MILLI, milli) for index, milli in held.items() if index < count and index not in faulty)


def fragmentation_ratio(
    cluster: Cluster, free: Mapping[str, NodeFree], *, gpus: int = REFERENCE_GPUS
) -> float:
    """
    Part of the free GPUs that no replica of so many whole GPUs could use.

        1 − Σ_n b_n · ⌊whole_n / b_n⌋ / Σ_n free_n        with b_n = min(gpus, GPUs of n)

    over nodes on which jobs may start; `whole_n` counts its wholly free GPUs and `free_n` all that is free
    of its GPUs. GPUs that are unhealthy or in MIG mode are left out. With nothing free the ratio is 0.
    """
    free_milli = usable_milli = 0
    for node in cluster.nodes:
        if not node.schedulable or not node.gpus:
            continue
        room = free[node.name].gpu_milli
        offered = node.gpus.count - sum(
            gpu.index < node.gpus.count and not (gpu.healthy and gpu.mig is None) for gpu in node.gpus.details
        )
        block = min(gpus, offered)
        free_milli += sum(max(0, milli) for milli in room)
        if block:
            usable_milli += room.count(MILLI) // block * block * MILLI
    return _ratio(free_milli - usable_milli, free_milli)


def jain_index(snapshot: Snapshot, placements: Iterable[Placement]) -> float:
    """
    Jain's fairness index of how far the queues' demands are met: 1 is equal, 1/n is one queue served alone.

        (Σ_q x_q)² / (n · Σ_q x_q²)        with x_q = allocated_q / demand_q

    over the n queues whose own jobs demand GPUs: what the running ones hold, before the plan or after it if
    that is more, and the waiting ones that are not held at their full size. Where nobody demands or gets
    anything it is 1.
    """
    allocated, demand = defaultdict[str, int](int), defaultdict[str, int](int)
    held = {placement.job: placement.quota_milli for placement in placements}
    for job in snapshot.jobs:
        queue, milli = job.queue, held.get(job.name, 0)
        allocated[queue] += milli
        if (before := job.placement) is not None:
            demand[queue] += max(before.quota_milli, milli)
        elif not job.held:
            demand[queue] += job.request.total_gpu_milli * job.gang.maximum
    met = [allocated[queue] / wanted for queue, wanted in sorted(demand.items()) if wanted]
    squares = len(met) * fsum(share * share for share in met)
    return round(fsum(met) ** 2 / squares, 6) if squares else 1.0


def hourly_cost(cluster: Cluster) -> float:
    """Σ price_per_hour over the ready nodes, busy or idle, in the cluster's currency."""
    return round(fsum(node.price_per_hour for node in cluster.nodes if node.ready), 6)


def _ratio(part: int, whole: int) -> float:
    """To six decimals, as it is written to files; 0 of nothing."""
    return round(part / whole, 6) if whole else 0.0
