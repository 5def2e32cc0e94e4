"""First fit: places the running part of a synthetic workload within capacities and quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.models.queue import Queue

_Kind: TypeAlias = tuple[object, ...]
"""Properties that decide where a job fits; jobs with equal ones are searched together."""


class FirstFit:
    """
    Nodes in a fixed order that fill up; resources are never freed.

    A node without room for a kind of job never gets room for it again, so the search for each kind continues
    where it stopped.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._free = {node.name: FreeResources.of(node) for node in nodes}
        self._models = sorted({node.gpu_model for node in nodes if node.gpu_model})
        self._candidates: dict[_Kind, list[Node]] = {}
        self._searched: dict[_Kind, int] = {}

    def find(self, job: Job, *, replicas: int) -> tuple[Replica, ...] | None:
        """Places for all replicas on the first nodes with room, on one GPU model; None if they do not fit."""
        if replicas == 1 or not job.request.needs_gpu:
            return self._find_on(job, None, replicas)
        found = (self._find_on(job, model, replicas) for model in self._models)
        return next((places for places in found if places), None)

    def take(self, replicas: Iterable[Replica]) -> None:
        """Mark the resources of the replicas as used."""
        for replica in replicas:
            self._free[replica.node].take(replica)

    def _find_on(self, job: Job, model: str | None, wanted: int) -> tuple[Replica, ...] | None:
        kind = (job.request.model_dump_json(), eligibility_key(job), model)
        candidates = self._nodes_for(job, model)
        replicas: list[Replica] = []
        for position in range(self._searched.get(kind, 0), len(candidates)):
            node = candidates[position]
            replicas += _replicas(job.request, node, self._free[node.name], most=wanted - len(replicas))
            if len(replicas) == wanted:
                return tuple(replicas)
            if not replicas:
                self._searched[kind] = position + 1
        return None

    def _nodes_for(self, job: Job, model: str | None) -> list[Node]:
        """Nodes on which the job is eligible, whatever is free there."""
        alike = (eligibility_key(job), model)
        if alike not in self._candidates:
            self._candidates[alike] = [
                node
                for node in self._nodes
                if model in (None, node.gpu_model) and ineligibility(job, node) is None
            ]
        return self._candidates[alike]


def _replicas(request: ResourceRequest, node: Node, free: FreeResources, *, most: int) -> list[Replica]:
    """As many replicas as fit on one node together, at most `most`."""
    replicas: list[Replica] = []
    while len(replicas) < most and (replica := _replica(request, node, free)):
        if not replicas:
            own = list(free.gpu_milli), dict(free.resources), set(free.mig_used)
            free = replace(free, gpu_milli=own[0], resources=own[1], mig_used=own[2])
        free.take(replica)
        replicas.append(replica)
    return replicas


def _replica(request: ResourceRequest, node: Node, free: FreeResources) -> Replica | None:
    """One replica on the first GPUs of a node with room; None if it does not fit."""
    gpus = _instances(request, node, free) if request.mig else _gpus(request, free)
    if gpus is None:
        return None
    replica = Replica(
        node=node.name,
        gpus=gpus,
        cpu_milli=f"{request.cpu_milli}m",
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )
    return replica if free.holds(replica) else None


def _gpus(request: ResourceRequest, free: FreeResources) -> tuple[GpuShare, ...] | None:
    """The first whole GPUs, or the first GPU with room for a share; None if there are too few."""
    each = request.gpu_milli or MILLI
    wanted = 1 if request.gpu_milli else request.gpus
    indices = [index for index, milli in enumerate(free.gpu_milli) if milli >= each][:wanted]
    return tuple(GpuShare(index=index, milli=each) for index in indices) if len(indices) == wanted else None


def _instances(request: ResourceRequest, node: Node, free: FreeResources) -> tuple[MigSlice, ...] | None:
    """The first idle MIG instances of the node; None if there are too few."""
    left = dict(request.mig)
    found: list[MigSlice] = []
    for gpu in node.gpus.details if node.gpus else ():
        for instance in (gpu.mig or ()) if gpu.healthy else ():
            if left.get(instance.profile) and (gpu.index, instance.start) not in free.mig_used:
                left[instance.profile] -= 1
                found.append(MigSlice(index=gpu.index, profile=instance.profile, start=instance.start))
    return None if any(left.values()) else tuple(found)


class QuotaTracker:
    """Usage of each queue, checked against the limits of the queue tree."""

    def __init__(self, queues: tuple[Queue, ...]) -> None:
        resources = {ALL_MODELS, *(model for queue in queues for model in queue.gpu_models)}
        self._limits = {resource: queue_limits(queues, resource) for resource in sorted(resources)}
        self._own: dict[str, dict[str, int]] = {resource: {} for resource in self._limits}

    def admit(self, queue: str, gpu_model: str | None, milli: int) -> bool:
        """Add a starting job and return True, or return False if a limit of the tree forbids it."""
        added: dict[str, dict[str, int]] = {}
        for resource in {ALL_MODELS, gpu_model or ALL_MODELS} & self._limits.keys():
            own = self._own[resource] | {queue: self._own[resource].get(queue, 0) + milli}
            limits = self._limits[resource]
            for name, used in limits.usage(own).items():
                limit = limits.limit[name]
                if limit is not None and used > limit:
                    return False
            added[resource] = own
        self._own.update(added)
        return True
