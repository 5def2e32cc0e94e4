"""Shapes: what replicas take of a node, over the countable resources of one question."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.overcommit import charged
from gpuplan.models.problem.jobs import Shape
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.eligibility.free_resources import NodeFree
    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.models.placement import Replica
    from gpuplan.planner.problem_builder.candidates import Runner

STANDARD: Final = ("CPU cores", "memory in MiB", "disk in MiB")
"""With spaces, as no name in a document has: a countable resource cannot be taken for one of them."""

POWER: Final = "GPU power in thousandths of GPUs"


class Shapes:
    """The countable resources of one question, and what is taken and free of them."""

    def __init__(self, cluster: Cluster, nodes: Iterable[Node], jobs: Iterable[Job]) -> None:
        self._cluster = cluster
        self._further = sorted({name for job in jobs for name in job.request.resources})
        self._freed: dict[object, Shape] = {}
        self.capped = any(power_cap_milli(node) < node.gpu_count * MILLI for node in nodes)
        """True if the power cap of some node could bind."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Names; that of power last, if any node has a cap."""
        return (*STANDARD, *self._further, *([POWER] if self.capped else []))

    def asked(self, job: Job) -> Shape:
        """What a new replica of a job takes."""
        request = job.request
        return Shape(
            gpus=request.gpus,
            gpu_milli=request.gpu_milli,
            amounts=self._amounts(request, job, request.total_gpu_milli),
            mig=tuple(sorted(request.mig.items())) if request.mig else (),
        )

    def in_full(self, job: Job) -> tuple[int, ...]:
        """What a new replica of a job asks for, where it counts for less; empty if it counts in full."""
        request = job.request
        amounts = request.cpu_milli, request.memory_mib
        if charged(request, job.qos, self._cluster) == amounts:
            return ()
        return amounts + self._amounts(request, job, request.total_gpu_milli)[2:]

    def freed(self, runner: Runner) -> Shape:
        """What each replica of a running job holds; all of them hold the same."""
        replica, job = runner.running.replicas[0], runner.job
        key = replica.amounts, job.qos
        if key not in self._freed:
            whole, shares, slices = replica.amounts[0]
            self._freed[key] = Shape(
                gpus=whole,
                gpu_milli=sum(shares),
                amounts=self.held(replica, job),
                mig=tuple(sorted(Counter(slices).items())),
            )
        return self._freed[key]

    def held(self, replica: Replica, job: Job) -> tuple[int, ...]:
        """What one replica of a running job counts for of each resource."""
        return self._amounts(replica, job, replica.quota_milli)

    def left(self, node: Node, left: NodeFree, held_milli: int) -> tuple[int, ...]:
        """
        What a node has free of each resource, of whose GPUs so many thousandths are held.

        Negative where more is held than there is.
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
        standard = *charged(held, job.qos, self._cluster), held.disk_mib
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
