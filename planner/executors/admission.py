"""Admission checks of a cluster before it gives places to a job, independent of the plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory, memory_slices
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica


def charged_replica(replica: Replica, job: Job, cluster: Cluster) -> Replica:
    """The replica with the CPU and memory that it is charged under overcommit."""
    cpu_milli, memory_mib = charged_cpu_memory(replica, job.qos, cluster)
    if (cpu_milli, memory_mib) == (replica.cpu_milli, replica.memory_mib):
        return replica
    return replica.model_copy(update={"cpu_milli": cpu_milli, "memory_mib": memory_mib})


def placement_refusal(
    job: Job,
    replicas: Iterable[Replica],
    *,
    nodes: Mapping[str, Node],
    held: Mapping[str, Iterable[Replica]],
    cluster: Cluster,
) -> str | None:
    """
    Why a job cannot have these places now; None if it can.

    `nodes` has the nodes by name, `held` the charged replicas of other jobs on each node.
    """
    free: dict[str, FreeResources] = {}
    for replica in replicas:
        node = nodes.get(replica.node)
        if node is None:
            return f"expected node {replica.node}, found no such node"
        if (why := ineligibility(job, node)) or (why := _mismatch(job, replica, node)):
            return f"node {replica.node}: {why}"
        if replica.node not in free:
            free[replica.node] = FreeResources.of(node)
            for holder in held.get(replica.node, ()):
                free[replica.node].take(holder)
        wanted = charged_replica(replica, job, cluster)
        if (why := _shortage(wanted, free[replica.node])) is not None:
            return f"node {replica.node}: {why}"
        free[replica.node].take(wanted)
    return None


def _mismatch(job: Job, replica: Replica, node: Node) -> str | None:
    """Why a replica differs from its job's request, or cannot have its MIG instances; None if it can."""
    request = job.request
    slices = [held for held in replica.gpus if isinstance(held, MigSlice)]
    asked = _gpus([MILLI] * request.gpus + [request.gpu_milli] * bool(request.gpu_milli), request.mig)
    holds = _gpus(
        [held.milli for held in replica.gpus if isinstance(held, GpuShare)],
        Counter(held.profile for held in slices),
    )
    if asked != holds:
        return f"expected {asked} for each replica, found {holds}"
    for name in ("cpu_milli", "memory_mib", "disk_mib", "resources"):
        if getattr(replica, name) != getattr(request, name):
            return (
                f"expected {name} {getattr(request, name)} for each replica, found {getattr(replica, name)}"
            )
    layouts = node.gpus.by_index if node.gpus else {}
    for held in slices:
        gpu = layouts.get(held.index)
        there = gpu.mig or () if gpu else ()
        if not any((instance.profile, instance.start) == (held.profile, held.start) for instance in there):
            return f"expected MIG instance {held.profile} at {held.start} on GPU {held.index}, found none"
        if gpu is not None and not gpu.healthy:
            return f"expected GPU {held.index} healthy, found it unhealthy"
    return None


def _gpus(milli: list[int], profiles: Mapping[str, int]) -> str:
    """Text of the GPUs that a replica requests or holds."""
    whole = milli.count(MILLI)
    parts = [f"{whole} GPUs"] + [f"{share} thousandths of a GPU" for share in sorted(milli) if share < MILLI]
    return ", ".join(parts + [f"{count} of MIG {profile}" for profile, count in sorted(profiles.items())])


def _shortage(wanted: Replica, free: FreeResources) -> str | None:
    """The first resource of a replica that exceeds the free amount; None if all fit."""
    shares: Counter[int] = Counter()
    for held in wanted.gpus:
        if isinstance(held, GpuShare):
            shares[held.index] += held.milli
    for index, milli in sorted(shares.items()):
        there = free.gpu_milli[index] if index < len(free.gpu_milli) else 0
        if there < milli:
            return f"expected {milli} thousandths free of GPU {index}, found {there}"
    # A node may be overcommitted in a resource; replicas that request none of it may still start.
    for name in ("cpu_milli", "memory_mib", "disk_mib"):
        there, amount = getattr(free, name), getattr(wanted, name)
        if amount and there < amount:
            return f"expected {name} {amount} free, found {there}"
    for name, amount in sorted(wanted.resources.items()):
        there = free.resources.get(name, 0)
        if amount and there < amount:
            return f"expected {amount} {name} free, found {there}"
    return _instances_in_use(wanted, free)


def _instances_in_use(wanted: Replica, free: FreeResources) -> str | None:
    """The first MIG instance that is in use, or that the replica names twice; None if each is free."""
    taken = set(free.mig_used)
    for held in wanted.gpus:
        if isinstance(held, MigSlice):
            slices = {(held.index, piece) for piece in memory_slices(held, free.geometry)}
            if not slices.isdisjoint(taken):
                instance = f"MIG instance {held.profile} at {held.start} on GPU {held.index}"
                return f"expected {instance} free, found it in use"
            taken |= slices
    return None
