"""Resource vectors: demand of replicas and free amounts of nodes, over the countable resources."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.problem.jobs import Shape
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.models.placement import Replica
    from gpuplan.planner.problem_builder.candidates import RunningCandidate


STANDARD: Final = ("CPU cores", "memory in MiB", "disk in MiB")
"""These names have spaces, so no countable resource of a document can have the same name."""

POWER: Final = "GPU power in thousandths of GPUs"


class ResourceVectors:
    """The countable resources of one problem, with demand and free amounts."""

    def __init__(
        self, cluster: Cluster, nodes: Iterable[Node], jobs: Iterable[Job], *, further_quotas: bool = False
    ) -> None:
        self._cluster = cluster
        self._further_quotas = further_quotas
        """True if a queue has a quota of anything but GPUs, so that requests of that count."""
        self._further = sorted({name for job in jobs for name in job.request.resources})
        self._freed: dict[object, Shape] = {}
        self.capped = any(power_cap_milli(node) < node.gpu_count * MILLI for node in nodes)
        """True if the power cap of some node could bind."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Names; GPU power is last, if any node has a power cap."""
        return (*STANDARD, *self._further, *([POWER] if self.capped else []))

    def asked(self, job: Job) -> Shape:
        """Resources that a new replica of a job takes."""
        request = job.request
        return Shape(
            gpus=request.gpus,
            gpu_milli=request.gpu_milli,
            amounts=self._amounts(request, job, request.total_gpu_milli),
            mig=tuple(sorted(request.mig.items())) if request.mig else (),
            further_quota=self._further_quota(request),
        )

    def full_request(self, job: Job) -> tuple[int, ...]:
        """Full request of a new replica if overcommit charges less; empty if it is charged in full."""
        request = job.request
        amounts = request.cpu_milli, request.memory_mib
        if charged_cpu_memory(request, job.qos, self._cluster) == amounts:
            return ()
        return amounts + self._amounts(request, job, request.total_gpu_milli)[2:]

    def freed(self, runner: RunningCandidate) -> Shape:
        """Resources that each replica of a running job holds; all its replicas hold the same."""
        replica, job = runner.running.replicas[0], runner.job
        key = replica.amounts, job.qos
        if key not in self._freed:
            whole, shares, slices = replica.amounts[0]
            self._freed[key] = Shape(
                gpus=whole,
                gpu_milli=sum(shares),
                amounts=self.held(replica, job),
                mig=tuple(sorted(Counter(slices).items())),
                further_quota=self._further_quota(replica),
            )
        return self._freed[key]

    def _further_quota(self, held: Replica | ResourceRequest) -> tuple[int, ...]:
        return held.quota[1:] if self._further_quotas else ()

    def held(self, replica: Replica, job: Job) -> tuple[int, ...]:
        """Charged amount of each resource for one replica of a running job."""
        return self._amounts(replica, job, replica.quota_milli)

    def left(self, node: Node, left: FreeResources, held_milli: int) -> tuple[int, ...]:
        """
        Free amount of each resource of a node; `held_milli` thousandths of its GPUs are in use.

        Negative on an overcommitted node.
        """
        standard = left.cpu_milli, left.memory_mib, left.disk_mib
        if not self._further and not self.capped:
            return standard
        return (
            *standard,
            *(left.resources.get(name, 0) for name in self._further),
            *([power_cap_milli(node) - held_milli] if self.capped else []),
        )

    def _amounts(self, held: Replica | ResourceRequest, job: Job, gpu_milli: int) -> tuple[int, ...]:
        standard = *charged_cpu_memory(held, job.qos, self._cluster), held.disk_mib
        if not self._further and not self.capped:
            return standard
        return (
            *standard,
            *(held.resources.get(name, 0) for name in self._further),
            *([gpu_milli] if self.capped else []),
        )


def power_cap_milli(node: Node) -> int:
    """Thousandths of the node's GPUs that may be in use together under its power cap."""
    offered = node.gpu_count * MILLI
    if not node.power_cap_watts or node.gpus is None or not node.gpus.watts:
        return offered
    return min(offered, node.power_cap_watts * MILLI // node.gpus.watts)
