"""Nodes and GPUs as the running jobs of a Slurm cluster use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.units import MILLI
from gpuplan.planner.sources.slurm.jobs import has_nodes_alone
from gpuplan.planner.sources.slurm.values import hosts, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.planner.sources.slurm.values import Record


def held_once(jobs: Iterable[Job], note: Callable[[str, str], None]) -> list[Job]:
    """The jobs with each GPU held once: a suspended job and the one in its place hold the same GPUs."""
    holders: dict[tuple[str, int], str] = {}
    return [_without_shared(job, holders, note) for job in jobs]


def _without_shared(job: Job, holders: dict[tuple[str, int], str], note: Callable[[str, str], None]) -> Job:
    if job.running is None:
        return job
    replicas: list[Replica] = []
    for replica in job.running.replicas:
        kept = []
        for held in replica.gpus:
            holder = holders.setdefault((replica.node, held.index), job.name)
            if holder == job.name:
                kept.append(held)
            else:
                note(f"job {job.name}", f"GPU {held.index} of {replica.node} is held by job {holder} too")
        same = len(kept) == len(replica.gpus)
        replicas.append(replica if same else replica.model_copy(update={"gpus": tuple(kept)}))
    if tuple(replicas) == job.running.replicas:
        return job
    running = job.running.model_copy(update={"replicas": tuple(replicas)})
    return job.model_copy(update={"running": running, "preemptible": False})


def with_some_gpus(jobs: Collection[Job], nodes: Iterable[Node]) -> list[Job]:
    """
    The jobs; if Slurm does not name the GPUs of one any more, free ones of its nodes count as held.

    Slurm chooses the GPUs of a job, so only their number matters. A job that is stopped completes for
    seconds, and its nodes stay open for those that come next.
    """
    held = {
        (replica.node, gpu.index) for job in jobs for replica in job.running_replicas for gpu in replica.gpus
    }
    counts = {node.name: node.gpu_count for node in nodes}
    return [_with_free_gpus(job, counts, held) for job in jobs]


def _with_free_gpus(job: Job, counts: Mapping[str, int], held: set[tuple[str, int]]) -> Job:
    if job.running is None or not job.request.gpus or all(each.gpus for each in job.running.replicas):
        return job
    replicas: list[Replica] = []
    for replica in job.running.replicas:
        free = [index for index in range(counts.get(replica.node, 0)) if (replica.node, index) not in held]
        taken = [] if replica.gpus or len(free) < job.request.gpus else free[: job.request.gpus]
        held.update((replica.node, index) for index in taken)
        shares = tuple(GpuShare(index=index, milli=MILLI) for index in taken)
        replicas.append(replica.model_copy(update={"gpus": shares}) if shares else replica)
    running = job.running.model_copy(update={"replicas": tuple(replicas)})
    return job.model_copy(update={"running": running})


def in_use(
    nodes: Iterable[Node], jobs: Collection[Job], records: Iterable[Record], note: Callable[[str, str], None]
) -> list[Node]:
    """The nodes: those that have jobs stay, and none start on those that a job may have alone."""
    busy = {replica.node for job in jobs for replica in job.running_replicas}
    alone = {
        name_of(host) for record in records if has_nodes_alone(record) for host in hosts(record.get("nodes"))
    }
    untold = {
        replica.node
        for job in jobs
        if job.request.gpus
        for replica in job.running_replicas
        if not replica.gpus
    }
    found = []
    for node in nodes:
        if node.name in busy and not node.ready:
            note(f"node {node.name}", "it is not ready, and jobs are on it: they stay, and no others start")
            found.append(node.model_copy(update={"ready": True, "cordoned": True}))
        elif node.name in alone:
            note(f"node {node.name}", "a job has it alone, or shares its GPUs: no others start there")
            found.append(node.model_copy(update={"cordoned": True}))
        elif node.name in untold:
            note(
                f"node {node.name}", "a job holds GPUs there that Slurm does not name: no others start there"
            )
            found.append(node.model_copy(update={"cordoned": True}))
        else:
            found.append(node)
    return found
