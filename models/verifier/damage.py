"""
The rule about damage: no replica keeps a lost place, and each damaged job is named.

It has its own definition of a sound place: the node exists and is ready, the GPU exists, is healthy and has
the layout in use, and the gang has enough replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.replica_identity import holding
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_count, truncated_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.cluster import Gpu, Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import MigSlice, Replica
    from gpuplan.models.plan.replica_identity import Holding
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.verifier.context import Context


def damage(case: Context) -> Iterator[Violation]:
    """No running job keeps a replica on a lost place, or fewer replicas than its gang's minimum."""
    if not case.facts.damaged:
        return
    for occupant in case.judged_placements:
        job = occupant.job
        if job is None or (lost := case.facts.damaged.get(job.name)) is None:
            continue
        replicas = occupant.placement.replicas
        kept = [replica for number, replica in enumerate(replicas) if number not in occupant.new]
        for why in sorted({lost[key] for replica in kept if (key := holding(replica)) in lost}):
            yield Violation(
                Rule.DAMAGE, f"job {job.name}", f"a replica that stays, {why}", "places that hold"
            )
        if kept and len(replicas) < job.gang.minimum:
            found = format_count(len(replicas), "replica")
            yield Violation(Rule.DAMAGE, f"job {job.name}", found, f"at least {job.gang.minimum}")


def unnamed_damage(found: Snapshot, sound: Snapshot, named: Collection[str]) -> Iterator[Violation]:
    """
    Check the snapshot that a plan was made from against the one that was `found`.

    Every job with a lost place is in `named`, and no other job is named or changed.
    """
    damaged = lost_places(found)
    left = {job.name for job in found.jobs if job.running and keeps_unhealthy(job, found)}
    for name in sorted((damaged.keys() | left) - set(named)):
        yield Violation(Rule.DAMAGE, f"job {name}", "lost places and no finding", "a finding")
    for name in sorted(set(named) - damaged.keys() - left):
        yield Violation(Rule.DAMAGE, f"job {name}", "a finding and no lost place", "no finding")
    before = found.job_by_name
    for job in sound.jobs:
        if job.name not in damaged and before.get(job.name) != job:
            yield Violation(
                Rule.DAMAGE, f"job {job.name}", "changed without damage", "the job as it was found"
            )
    if missing := before.keys() ^ sound.job_by_name.keys():
        yield Violation(
            Rule.DAMAGE, f"jobs {truncated_names(missing)}", "in one of the two only", "the same jobs"
        )


def lost_places(snapshot: Snapshot) -> dict[str, dict[Holding, str]]:
    """
    Reasons why places of running jobs are lost, by job and by holding of a replica.

    A job with fewer replicas than its gang's minimum is included, even without a lost place.
    """
    nodes = snapshot.cluster.node_by_name
    found: dict[str, dict[Holding, str]] = {}
    for job in snapshot.jobs:
        if job.running is None:
            continue
        lost: dict[Holding, str] = {}
        for replica in job.running.replicas:
            if why := _why_lost(job, replica, nodes.get(replica.node)):
                lost[holding(replica)] = why
        if lost or len(job.running.replicas) < job.gang.minimum:
            found[job.name] = lost
    return found


def keeps_unhealthy(job: Job, snapshot: Snapshot) -> bool:
    """True if a job that may not be interrupted holds an unhealthy GPU."""
    nodes = snapshot.cluster.node_by_name
    return not job.preemptible and any(
        (gpu := _gpu(nodes.get(replica.node), held)) is not None and not gpu.healthy
        for replica in (job.running.replicas if job.running else ())
        for held in replica.gpus
    )


def _why_lost(job: Job, replica: Replica, node: Node | None) -> str:
    """Reason why a replica's place is lost; empty if it is sound."""
    if node is None:
        return f"node {replica.node} is gone"
    if not node.ready:
        return f"node {node.name} is not ready"
    if node.gpus is not None and not node.gpus.details and _are_plain(replica, node.gpus.count):
        return ""
    for held in replica.gpus:
        gpu = _gpu(node, held)
        if gpu is None:
            return f"gpu {held.index} of node {node.name} is gone"
        if not gpu.healthy and job.preemptible:
            return f"gpu {held.index} of node {node.name} is unhealthy"
        if not _is_laid_out(gpu, held):
            return f"gpu {held.index} of node {node.name} has another MIG layout"
    return ""


def _are_plain(replica: Replica, count: int) -> bool:
    return all(isinstance(held, GpuShare) and held.index < count for held in replica.gpus)


def _gpu(node: Node | None, held: GpuShare | MigSlice) -> Gpu | None:
    return node.gpus.by_index.get(held.index) if node and node.gpus else None


def _is_laid_out(gpu: Gpu, held: GpuShare | MigSlice) -> bool:
    if isinstance(held, GpuShare):
        return gpu.mig is None
    return gpu.mig is not None and held.instance in gpu.mig
