"""
Where rollouts apply: nothing but GPUs, GPU models, expected ends and quotas of GPUs decides what starts when.

What is held back for a start that another rule then forbids would stay idle for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.queue import (
    ALL_MODELS,
    NOT_OF_GPUS,
    queue_and_above,
    root_queue,
)
from gpuplan.models.timing.durations import DurationSource
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations


def is_simple(snapshot: Snapshot, policy: Policy, waiting: Sequence[Job], durations: Durations) -> bool:
    """True if only whole GPUs of nodes and of quotas decide when the waiting jobs may start."""
    cluster = snapshot.cluster
    if cluster.pools or cluster.reservations or cluster.rack_power or cluster.overcommit:
        return False
    if any(node.power_cap_watts for node in cluster.nodes) or not all(map(_is_simple_job, waiting)):
        return False
    unsure = [job for job in waiting if job.expected_duration is None]
    if any(durations.expected(job).source is DurationSource.DEFAULT for job in unsure):
        return False
    if policy.prices.interference or not _only_gpus_run_out(snapshot):
        return False
    if not _are_simple_quotas(snapshot, policy, waiting):
        return False
    return not any(
        job.request.mig or job.request.gpu_milli or job.gang.elastic for job in snapshot.jobs if job.running
    )


def held_gpus(snapshot: Snapshot, job: Job, resource: str) -> int:
    """GPUs that a job holds, all or of one model; 0 if it waits."""
    models = snapshot.cluster.gpu_model_by_node
    return sum(
        len(replica.gpus)
        for replica in (job.running.replicas if job.running else ())
        if resource in (ALL_MODELS, models.get(replica.node))
    )


def _are_simple_quotas(snapshot: Snapshot, policy: Policy, waiting: Sequence[Job]) -> bool:
    """True if quotas of waiting jobs limit GPUs alone, are sums over the tree, and none can be reclaimed."""
    parents = snapshot.parent_queues
    above = {each for job in waiting for each in queue_and_above(job.queue, parents)}
    trees = [queue for queue in snapshot.queues if root_queue(queue.name, parents) in above]
    if any(queue.limits_for(each) for queue in trees if queue.name in above for each in NOT_OF_GPUS):
        return False
    quotas = [each for queue in trees for each in queue.gpu_quotas]
    if any(quota.guarantee or quota.lending_limit is not None for quota in quotas):
        return False
    rules = policy.disruption
    reclaims = bool(quotas) and rules.reclaim and (rules.preempt or rules.resize)
    return not (reclaims and _may_borrow(snapshot))


def _may_borrow(snapshot: Snapshot) -> bool:
    """True if a job that may be stopped holds, or could get, more than its queue is entitled to."""
    queues = {queue.name: queue for queue in snapshot.queues}
    held: dict[str, int] = {}
    for job in snapshot.jobs:
        held[job.queue] = held.get(job.queue, 0) + MILLI * held_gpus(snapshot, job, ALL_MODELS)
    for name in {job.queue for job in snapshot.jobs if job.preemptible and (job.running or not job.withheld)}:
        queue = queues[name]
        if not (quota := queue.quota) or queue.gpu_models or name in snapshot.child_queues:
            return True
        if held[name] > quota.nominal or (queue.parent is not None and quota.borrowing_limit != 0):
            return True
    return False


def _only_gpus_run_out(snapshot: Snapshot) -> bool:
    """True if each job asks for no larger part of a node's CPU and memory than of its GPUs."""
    nodes = {node.name: node for node in snapshot.cluster.nodes if node.gpus}
    there = [job for job in snapshot.jobs if _is_on_any(job, nodes)]
    jobs = [*there, *(job for job in snapshot.waiting if not job.withheld)]
    if not all(job.request.needs_gpu for job in jobs):
        return False
    for model in {node.gpu_model for node in nodes.values()}:
        asked = [job.request for job in jobs if not job.gpu_models or model in job.gpu_models]
        cpus = max((each.cpu_milli / each.gpus for each in asked if each.gpus), default=0)
        memory = max((each.memory_mib / each.gpus for each in asked if each.gpus), default=0)
        for node in nodes.values():
            count = len(node.gpus.by_index) if node.gpus and node.gpu_model == model else 0
            if cpus * count > node.cpu_milli or memory * count > node.memory_mib:
                return False
    return True


def _is_on_any(job: Job, nodes: Container[str]) -> bool:
    return job.running is not None and any(each.node in nodes for each in job.running.replicas)


def _is_simple_job(job: Job) -> bool:
    """True if only whole GPUs of single nodes, and when it completes, matter to a waiting job."""
    return (
        job.request.gpus > 0
        and job.weight_milli > 0
        and not job.gang.elastic
        and not job.request.disk_mib
        and not job.request.resources
        and not (job.locality.required or job.spread or job.anti_affinity or job.datasets or job.co_start)
        and not (job.depends_on or job.begins_at or job.deadline or job.hard_deadline)
        and not (job.preferred_nodes or job.locality.preferred)
    )
