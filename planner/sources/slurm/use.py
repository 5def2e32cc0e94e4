"""Nodes and GPUs as the running jobs of a Slurm cluster use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.planner.sources.slurm.jobs import has_nodes_alone
from gpuplan.planner.sources.slurm.values import hosts, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

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


def in_use(
    nodes: Iterable[Node], jobs: Collection[Job], records: Iterable[Record], note: Callable[[str, str], None]
) -> list[Node]:
    """The nodes: those that have jobs stay, and none start on those that a job may have alone."""
    busy = {replica.node for job in jobs if job.running for replica in job.running.replicas}
    alone = {
        name_of(host) for record in records if has_nodes_alone(record) for host in hosts(record.get("nodes"))
    }
    untold = {
        replica.node
        for job in jobs
        if job.running and job.request.gpus
        for replica in job.running.replicas
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
