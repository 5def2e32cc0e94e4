"""Capacity for a promised start next to given jobs: on its nodes, under power caps, in the quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import (
    charged_cpu_memory,
    free_resources_by_node,
    memory_slices,
)
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom
from gpuplan.planner.waiting.blocked_nodes import power_left

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.eligibility.free_resources import FreeResources
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule


class PromiseDelayRoom:
    """Capacity checks for one plan; running jobs count with the places that they have after the plan."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._cluster = future.snapshot.cluster.model_copy(
            update={"nodes": tuple(node for _, node in sorted(future.nodes.items()))}
        )

    def short_of_room(self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]) -> list[str]:
        """Nodes with too few free resources for a job's replicas next to the other jobs, sorted."""
        wanted = sorted({replica.node for replica in replicas} & self._future.nodes.keys())
        nodes = [self._future.nodes[name] for name in wanted]
        free = free_resources_by_node(nodes, _placements(stays), snapshot=self._future.snapshot)
        return [name for name in wanted if not self._fits(job, replicas, name, free[name])]

    def short_of_power(
        self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]
    ) -> list[str]:
        """Nodes where the job would exceed the power cap of the node or rack next to the others, sorted."""
        around, found = _placements(stays), []
        for name in sorted({replica.node for replica in replicas}):
            # The job's other replicas may draw from the same rack.
            others = tuple(replica for replica in replicas if replica.node != name)
            mine = [Placement(job=job.name, replicas=others)] if others else []
            needed = sum(replica.quota_milli for replica in replicas if replica.node == name)
            if power_left(self._cluster, [*around, *mine]).by_node.get(name, needed) < needed:
                found.append(name)
        return found

    def short_of_quota(
        self, job: Job, replicas: Sequence[Replica], stays: Iterable[JobInterval]
    ) -> str | None:
        """The queue in which a job would exceed a limit next to the other jobs; None if there is none."""
        model = self._future.gpu_model(job, replicas)
        needed = sum(replica.quota_milli for replica in replicas)
        room = QuotaHeadroom(self._future.snapshot, _placements(stays), added=self._future.target.added)
        found = room.now(job.queue, needed, (model,) if model else ()).shortage
        return found.queue if found else None

    def _fits(self, job: Job, replicas: Sequence[Replica], name: str, free: FreeResources) -> bool:
        here = [replica for replica in replicas if replica.node == name]
        node = self._future.nodes[name]
        # A promise fixes only the number of a node's whole GPUs; their indices are chosen at the start.
        whole = sum(
            isinstance(held, GpuShare) and held.milli == MILLI for replica in here for held in replica.gpus
        )
        shares = {
            index: sum(
                held.milli
                for replica in here
                for held in replica.gpus
                if isinstance(held, GpuShare) and held.milli < MILLI and held.index == index
            )
            for index in range(len(free.gpu_milli))
        }
        untouched = sum(milli == MILLI and not shares[index] for index, milli in enumerate(free.gpu_milli))
        slices = [held for replica in here for held in replica.gpus if isinstance(held, MigSlice)]
        geometry = mig_geometry(node.gpus.model) if node.gpus else None
        pieces = [(held.index, piece) for held in slices for piece in memory_slices(held, geometry)]
        if (
            untouched < whole
            or any(milli > free.gpu_milli[index] for index, milli in shares.items() if milli)
            or not free.mig_used.isdisjoint(pieces)
        ):
            return False
        request, count = job.request, len(here)
        cpu_milli, memory_mib = charged_cpu_memory(request, job.qos, self._cluster)
        return (
            count * cpu_milli <= free.cpu_milli
            and count * memory_mib <= free.memory_mib
            and count * request.disk_mib <= free.disk_mib
            and all(
                count * amount <= free.resources.get(resource, 0)
                for resource, amount in request.resources.items()
            )
        )


def _placements(stays: Iterable[JobInterval]) -> list[Placement]:
    return [Placement(job=stay.job.name, replicas=stay.replicas) for stay in stays]
