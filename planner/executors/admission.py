"""What a cluster checks for itself before it starts a job, whatever a plan says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from planner.models.occupancy import NodeFree
from planner.models.placement import GpuShare, MigSlice
from planner.models.selection import refusal
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.placement import Replica


def start_refusal(
    job: Job, replicas: Iterable[Replica], *, nodes: Mapping[str, Node], held: Mapping[str, Iterable[Replica]]
) -> str | None:
    """
    Why a job cannot start on these places now; None if it can.

    `nodes` has the nodes by name, `held` what runs on each of them. The gang starts whole or not at all.
    """
    replicas = tuple(replicas)
    if job.running is not None:
        places = sorted({replica.node for replica in job.running.replicas})
        return f"expected it waiting, found it running on {', '.join(places)}"
    if job.held:
        return "expected it free to start, found it held"
    if not job.gang.minimum <= len(replicas) <= job.gang.maximum:
        return f"expected {job.gang.minimum} to {job.gang.maximum} replicas, found {len(replicas)}"
    free: dict[str, NodeFree] = {}
    for replica in replicas:
        node = nodes.get(replica.node)
        if node is None:
            return f"expected node {replica.node}, found no such node"
        if (why := refusal(job, node)) or (why := _mismatch(job, replica, node)):
            return f"node {replica.node}: {why}"
        if replica.node not in free:
            free[replica.node] = NodeFree.of(node)
            for holder in held.get(replica.node, ()):
                free[replica.node].take(holder)
        if not free[replica.node].holds(replica):
            return f"node {replica.node}: {_shortage(replica, free[replica.node])}"
        free[replica.node].take(replica)
    return None


def _mismatch(job: Job, replica: Replica, node: Node) -> str | None:
    """Why a replica does not hold what its job asks for."""
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
        instances = layouts[held.index].mig if held.index in layouts else None
        if not any((there.profile, there.start) == (held.profile, held.start) for there in instances or ()):
            return f"expected MIG instance {held.profile} at {held.start} on GPU {held.index}, found none"
    return None


def _gpus(milli: list[int], profiles: Mapping[str, int]) -> str:
    """What a replica asks for or holds of GPUs, as one text."""
    whole = milli.count(MILLI)
    parts = [f"{whole} GPUs"] + [f"{share} thousandths of a GPU" for share in sorted(milli) if share < MILLI]
    return ", ".join(parts + [f"{count} of MIG {profile}" for profile, count in sorted(profiles.items())])


def _shortage(replica: Replica, free: NodeFree) -> str:
    """What of a replica does not fit into what is free."""
    for held in replica.gpus:
        there = free.gpu_milli[held.index] if held.index < len(free.gpu_milli) else 0
        if isinstance(held, GpuShare) and there < held.milli:
            return f"expected {held.milli} thousandths free of GPU {held.index}, found {there}"
    for name in ("cpu_milli", "memory_mib", "disk_mib"):
        if (there := getattr(free, name)) < (wanted := getattr(replica, name)):
            return f"expected {name} {wanted} free, found {there}"
    for name, wanted in sorted(replica.resources.items()):
        if (there := free.resources.get(name, 0)) < wanted:
            return f"expected {wanted} {name} free, found {there}"
    return "expected its GPUs free, found them in use"
