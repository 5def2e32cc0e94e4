"""Gauge values of a cluster and its queues, for the metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.plan.actions import Start
from gpuplan.models.plan.plan import DeadlineState, Plan
from gpuplan.models.queue import ALL_MODELS, with_all_below
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.effects import cluster_after
from gpuplan.planner.analysis.metrics import (
    allocation_ratio,
    fragmentation_ratio,
    gpus_in_use,
    hourly_cost,
    jain_index,
)
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.placement import Placement

GANG_SIZES: Final = (1, 2, 4, 8)
"""Replica sizes, in whole GPUs on one node, for which fragmentation is reported."""

LONG_WAIT_SECONDS: Final = 1800
"""Jobs that wait for longer are also counted separately."""

NOT_APPLIED: Final = "NotApplied"
"""Reason of a job that is pending only because its plan is not applied."""


@dataclass(frozen=True, slots=True)
class EpochGauges:
    """Gauge values of one epoch; GPU shares and MIG slices count as fractions of a GPU."""

    gpus: dict[tuple[str, str], float]
    """GPUs by state and model; total is the sum of used, idle, stranded and unhealthy."""
    utilization: float
    """Allocated part of the usable GPUs."""
    fragmentation: dict[int, float]
    """Part of the free GPUs that no replica of this number of whole GPUs could use."""
    pending: dict[tuple[str, str], int]
    """Pending jobs by queue and reason code."""
    long_pending: dict[str, int]
    """Jobs pending for more than half an hour, by queue; without held jobs."""
    running: int
    """Running jobs."""
    dominant_share: dict[str, float]
    """Largest part of all GPUs, CPUs or memory that a queue's jobs hold, by queue."""
    quota_usage: dict[str, float]
    """GPUs held over nominal quota, both with the queues below, by queue; without zero quotas."""
    jain: float
    hourly_cost: float
    """In the cluster's currency."""
    deadlines_at_risk: int
    """Jobs with a deadline that is critical, late or impossible."""


def epoch_gauges(plan: Plan, *, applied: bool) -> EpochGauges:
    """Figures of the cluster after the plan if it was applied completely, else those of the snapshot."""
    snapshot = plan.snapshot
    cluster = cluster_after(snapshot, plan.target) if applied else snapshot.cluster
    placements = plan.placements if applied else snapshot.running_placements
    free = free_resources_by_node(cluster.nodes, placements)
    pending = _pending(plan, applied=applied)
    return EpochGauges(
        gpus=_gpus(cluster, placements, free),
        utilization=allocation_ratio(cluster, placements),
        fragmentation={size: fragmentation_ratio(cluster, free, gpus=size) for size in GANG_SIZES},
        pending=dict(sorted(pending.items())),
        long_pending=_long_pending(plan, applied=applied),
        running=len(placements),
        dominant_share=_dominant_share(plan, cluster, placements),
        quota_usage=_quota_usage(plan, placements),
        jain=jain_index(snapshot, placements),
        hourly_cost=hourly_cost(cluster),
        deadlines_at_risk=sum(each.state is not DeadlineState.MET for each in plan.deadlines),
    )


def _gpus(
    cluster: Cluster, placements: Iterable[Placement], free: Mapping[str, FreeResources]
) -> dict[tuple[str, str], float]:
    """
    GPUs by state and model.

    Stranded GPUs are free GPUs of ready nodes that take no new jobs, or that have no free CPU or memory.
    """
    used, usable = gpus_in_use(cluster, placements)
    total, stranded = Counter[str](), Counter[str]()
    for node in cluster.nodes:
        if node.gpus is None:
            continue
        total[node.gpus.model] += MILLI * node.gpus.count
        room = free[node.name]
        closed = not node.schedulable or room.cpu_milli <= 0 or room.memory_mib <= 0
        if node.ready and closed:
            stranded[node.gpus.model] += sum(max(0, milli) for milli in room.gpu_milli)
    found: dict[tuple[str, str], float] = {}
    for model in sorted(total):
        states = {
            "total": total[model],
            "used": used[model],
            "idle": usable[model] - used[model] - stranded[model],
            "stranded": stranded[model],
            "unhealthy": total[model] - usable[model],
        }
        found |= {(state, model): milli / MILLI for state, milli in states.items()}
    return found


def _pending(plan: Plan, *, applied: bool) -> Counter[tuple[str, str]]:
    jobs = plan.snapshot.job_by_name
    found = Counter(
        (jobs[each.job].queue, each.reason.code.value)
        for each in plan.waiting
        if applied or jobs[each.job].running is None
    )
    if not applied:
        starts = (action.job for action in plan.actions if isinstance(action, Start))
        found.update((jobs[job].queue, NOT_APPLIED) for job in starts)
    return found


def _long_pending(plan: Plan, *, applied: bool) -> dict[str, int]:
    found = {queue.name: 0 for queue in plan.snapshot.queues}
    placed = {placement.job for placement in plan.placements} if applied else frozenset[str]()
    for job in plan.snapshot.jobs:
        waits = job.running is None and job.name not in placed and not job.withheld
        if waits and (plan.epoch - job.submitted_at).total_seconds() > LONG_WAIT_SECONDS:
            found[job.queue] += 1
    return found


def _dominant_share(plan: Plan, cluster: Cluster, placements: Iterable[Placement]) -> dict[str, float]:
    jobs = plan.snapshot.job_by_name
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for placement in placements:
        for replica in placement.replicas:
            amounts = {"gpus": replica.quota_milli, "cpus": replica.cpu_milli, "memory": replica.memory_mib}
            held[jobs[placement.job].queue].update(amounts)
    there = Counter[str]()
    for node in cluster.nodes:
        if node.ready:
            amounts = {"gpus": MILLI * node.gpu_count, "cpus": node.cpu_milli, "memory": node.memory_mib}
            there.update(amounts)
    return {
        queue.name: max(
            (held[queue.name][resource] / amount for resource, amount in there.items() if amount), default=0.0
        )
        for queue in plan.snapshot.queues
    }


def _quota_usage(plan: Plan, placements: Iterable[Placement]) -> dict[str, float]:
    queues = plan.snapshot.queues
    own = usage_of_resource(usage_by_queue(plan.snapshot, placements, added=plan.target.added), ALL_MODELS)
    nominal = {queue.name: queue.quota.nominal if queue.quota else 0 for queue in queues}
    held, quota = with_all_below(queues, own), with_all_below(queues, nominal)
    return {queue.name: held[queue.name] / quota[queue.name] for queue in queues if quota[queue.name]}
