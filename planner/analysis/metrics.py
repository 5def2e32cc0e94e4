"""Figures of a cluster and a plan: one function per figure; its docstring gives the formula."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from math import fsum
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.plan.plan import JobCounts, Metrics
from gpuplan.planner.analysis.allocations import (
    REFERENCE_GPUS,
    Allocations,
    allocations_of,
    gpus_startable,
    gpus_used,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.analysis.job_changes import PlanChanges


def compute_metrics(changes: PlanChanges) -> Metrics:
    """Compute all figures for the state after a target is applied."""
    snapshot, target, cluster = changes.snapshot, changes.target, changes.cluster
    placements = target.placements
    kinds = Counter(change.kind for change in changes.jobs)
    return Metrics(
        gpu_allocation_ratio=_allocated_part(changes.allocations_after),
        gpu_allocation_ratio_before=_allocated_part(allocations_of(snapshot)),
        fragmentation_ratio=_unusable_part(changes.allocations_after),
        jain_index=jain_index(snapshot, placements),
        hourly_cost=hourly_cost(cluster),
        hourly_cost_before=hourly_cost(snapshot.cluster),
        jobs=JobCounts(
            running=len(placements),
            started=kinds[ActionKind.START],
            waiting=len(snapshot.jobs) - len(placements),
            preempted=kinds[ActionKind.PREEMPT],
            planned=len(target.planned),
            promised=sum(each.promised for each in target.planned),
        ),
    )


def allocation_ratio(cluster: Cluster, placements: Iterable[Placement]) -> float:
    """
    Allocated fraction of the usable GPUs: healthy GPUs of ready nodes.

        Σ_g min(1, allocated(g)) / |usable GPUs|

    A MIG slice counts as its compute slices out of 7. Without usable GPUs the ratio is 0.
    """
    used, usable = gpus_in_use(cluster, placements)
    return _ratio(used.total(), usable.total())


def _allocated_part(holdings: Allocations) -> float:
    return _ratio(holdings.total("used"), holdings.total("usable"))


def gpus_in_use(cluster: Cluster, placements: Iterable[Placement]) -> tuple[Counter[str], Counter[str]]:
    """Return thousandths of GPUs by model on healthy GPUs of ready nodes: (allocated, usable)."""
    placements = tuple(placements)
    there: dict[str, list[Replica]] = defaultdict(list)
    for placement in placements:
        for replica in placement.replicas:
            there[replica.node].append(replica)
    free = free_resources_by_node(cluster.nodes, placements)
    used, usable = Counter[str](), Counter[str]()
    for node in cluster.nodes:
        if node.gpus and node.ready:
            taken, offered = gpus_used(node, free[node.name], partial(there.__getitem__, node.name))
            used[node.gpus.model] += taken
            usable[node.gpus.model] += offered
    return used, usable


def fragmentation_ratio(
    cluster: Cluster, free: Mapping[str, FreeResources], *, gpus: int = REFERENCE_GPUS
) -> float:
    """
    Fraction of the free GPUs that no replica of `gpus` whole GPUs could use.

        1 − Σ_n b_n · ⌊whole_n / b_n⌋ / Σ_n free_n        with b_n = min(gpus, GPUs of n)

    over nodes on which jobs may start; `whole_n` counts the wholly free GPUs of n, and `free_n` is all free
    GPU capacity of n. Unhealthy GPUs and GPUs in MIG mode are left out. If nothing is free, the ratio is 0.
    """
    found = [gpus_startable(node, free[node.name], gpus) for node in cluster.nodes]
    startable = sum(milli for milli, _ in found)
    return _ratio(startable - sum(milli for _, milli in found), startable)


def _unusable_part(holdings: Allocations) -> float:
    startable = holdings.total("startable")
    return _ratio(startable - holdings.total("in_blocks"), startable)


def jain_index(snapshot: Snapshot, placements: Iterable[Placement]) -> float:
    """
    Jain's fairness index over the met fractions of the queues' demands: 1 is equal, 1/n is one queue alone.

        (Σ_q x_q)² / (n · Σ_q x_q²)        with x_q = allocated_q / demand_q

    over the n queues with a demand. The demand is the sum over the queue's own jobs: for a running job what
    it holds before or after the plan, whichever is more; for a waiting job that is not held its maximum size.
    If there is no demand or nothing is allocated, the index is 1.
    """
    allocated, demand = defaultdict[str, int](int), defaultdict[str, int](int)
    held = {placement.job: placement.quota_milli for placement in placements}
    for job in snapshot.jobs:
        queue, milli = job.queue, held.get(job.name, 0)
        allocated[queue] += milli
        if (before := job.placement) is not None:
            demand[queue] += max(before.quota_milli, milli)
        elif not job.withheld:
            demand[queue] += job.request.total_gpu_milli * job.gang.maximum
    met = [allocated[queue] / wanted for queue, wanted in sorted(demand.items()) if wanted]
    squares = len(met) * fsum(share * share for share in met)
    return round(fsum(met) ** 2 / squares, 6) if squares else 1.0


def hourly_cost(cluster: Cluster) -> float:
    """Σ price_per_hour over the ready nodes, busy or idle, in the cluster's currency."""
    return round(fsum(node.price_per_hour for node in cluster.nodes if node.ready), 6)


def _ratio(part: int, whole: int) -> float:
    """Rounded to six decimals, as written to files; 0 if `whole` is 0."""
    return round(part / whole, 6) if whole else 0.0
