"""Queues for which schedules are compared: those where only whole GPUs decide what may start when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.queue import queue_and_above
from gpuplan.models.timing.durations import DurationSource
from gpuplan.models.timing.progress import unserved_seconds

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.durations import Durations

_PATIENCE: Final = 86_400
"""Seconds of waiting after which jobs start as they fit: estimates may be wrong for which they wait."""


def is_simple(snapshot: Snapshot, policy: Policy, waiting: Sequence[Job], durations: Durations) -> bool:
    """
    True if places are whole GPUs of nodes, and nothing else decides what may start when.

    What is held back for a start that another rule then forbids would stay idle for nothing.
    """
    cluster = snapshot.cluster
    if cluster.pools or cluster.reservations or cluster.rack_power or cluster.overcommit:
        return False
    if any(node.power_cap_watts for node in cluster.nodes) or not all(map(_is_simple_job, waiting)):
        return False
    unknown = (durations.expected(job).source is DurationSource.DEFAULT for job in waiting)
    if len({job.priority for job in waiting}) > 1 or any(unknown):
        return False
    limited = {queue.name for queue in snapshot.queues if queue.limited}
    used = {each for job in waiting for each in queue_and_above(job.queue, snapshot.parent_queues)}
    if limited & used or policy.prices.interference or not _only_gpus_run_out(snapshot):
        return False
    patience = min(_PATIENCE, policy.horizon.backfill.starving or _PATIENCE)
    if any(unserved_seconds(job, snapshot.taken_at) >= patience for job in waiting):
        return False
    rules, priority = policy.disruption, waiting[0].priority
    return not any(
        (job.request.mig or job.request.gpu_milli or job.gang.elastic)
        or (rules.preempt and job.preemptible and job.priority + rules.priority_gap <= priority)
        for job in snapshot.jobs
        if job.running
    )


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
