"""Free resources of each node under given placements: plain accounting, without rule checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.cluster import Cluster, Gpu, MigInstance, Node, QosClass
from gpuplan.models.mig import MEDIA_EXTENSIONS, MigGeometry, mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.job import ResourceRequest
    from gpuplan.models.snapshot import Snapshot


@dataclass(slots=True)
class FreeResources:
    """Free amounts of one node; negative where running jobs hold more than the node has."""

    gpu_milli: list[int]
    """Thousandths free by GPU index; 0 if the GPU is unhealthy or in MIG mode."""
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    resources: dict[str, int]
    mig_used: set[tuple[int, int]]
    """(GPU index, memory slice) of MIG instances in use."""
    geometry: MigGeometry | None = None
    """MIG geometry of the node's GPUs."""

    @classmethod
    def of(cls, node: Node) -> FreeResources:
        """All resources of the node, with nothing placed."""
        gpus = node.gpus
        gpu_milli = [MILLI] * gpus.count if gpus else []
        for gpu in gpus.details if gpus else ():
            if gpu.index < len(gpu_milli):
                gpu_milli[gpu.index] = MILLI if gpu.healthy and gpu.mig is None else 0
        return cls(
            gpu_milli=gpu_milli,
            cpu_milli=node.cpu_milli,
            memory_mib=node.memory_mib,
            disk_mib=node.disk_mib,
            resources=dict(node.resources),
            mig_used=set(),
            geometry=mig_geometry(gpus.model) if gpus else None,
        )

    @property
    def whole_gpus(self) -> int:
        """Number of wholly free GPUs."""
        return self.gpu_milli.count(MILLI)

    @property
    def largest_share(self) -> int:
        """Largest number of thousandths free on one GPU."""
        return max(self.gpu_milli, default=0)

    @property
    def all_shares(self) -> int:
        """Thousandths free on all GPUs, including partly used ones."""
        gpu_milli = self.gpu_milli
        if min(gpu_milli, default=0) >= 0:
            return sum(gpu_milli)
        return sum([milli for milli in gpu_milli if milli > 0])

    def take(self, replica: Replica, charge: tuple[int, int] | None = None) -> None:
        """Subtract what a replica holds; `charge` replaces its CPU and memory under overcommit."""
        gpu_milli = self.gpu_milli
        for held in replica.gpus:
            if not isinstance(held, GpuShare):
                self.mig_used.update(self._slices(held))
            elif held.index < len(gpu_milli):
                gpu_milli[held.index] -= held.milli
        cpu_milli, memory_mib = charge or (replica.cpu_milli, replica.memory_mib)
        self.cpu_milli -= cpu_milli
        self.memory_mib -= memory_mib
        self.disk_mib -= replica.disk_mib
        for name, amount in replica.resources.items():
            self.resources[name] = self.resources.get(name, 0) - amount

    def holds(self, replica: Replica, charge: tuple[int, int] | None = None) -> bool:
        """True if the replica fits the free resources; `charge` as in `take`."""
        shares: dict[int, int] = {}
        wanted: set[tuple[int, int]] = set()
        for held in replica.gpus:
            if isinstance(held, GpuShare):
                shares[held.index] = shares.get(held.index, 0) + held.milli
                continue
            slices = self._slices(held)
            if not slices.isdisjoint(self.mig_used | wanted):
                return False
            wanted |= slices
        cpu_milli, memory_mib = charge or (replica.cpu_milli, replica.memory_mib)
        return (
            all(
                index < len(self.gpu_milli) and milli <= self.gpu_milli[index]
                for index, milli in shares.items()
            )
            and cpu_milli <= self.cpu_milli
            and memory_mib <= self.memory_mib
            and replica.disk_mib <= self.disk_mib
            and all(amount <= self.resources.get(name, 0) for name, amount in replica.resources.items())
        )

    def _slices(self, held: MigSlice) -> set[tuple[int, int]]:
        return {(held.index, piece) for piece in memory_slices(held, self.geometry)}


def free_resources_by_node(
    nodes: Iterable[Node], placements: Iterable[Placement], *, snapshot: Snapshot | None = None
) -> dict[str, FreeResources]:
    """
    Free amounts by node name; replicas on unknown nodes are ignored.

    The snapshot gives the QoS class of each job and the cluster's overcommit. Without it all CPU and memory
    counts in full.
    """
    free = {node.name: FreeResources.of(node) for node in nodes}
    for placement in placements:
        job = snapshot.job_by_name.get(placement.job) if snapshot and snapshot.cluster.overcommit else None
        for replica in placement.replicas:
            if (node := free.get(replica.node)) is not None:
                node.take(
                    replica,
                    charged_cpu_memory(replica, job.qos, snapshot.cluster) if snapshot and job else None,
                )
    return free


# MIG layout of a GPU after given instances of it are in use.


def layout_after(
    gpu: Gpu, geometry: MigGeometry | None, used: Collection[MigInstance]
) -> tuple[MigInstance, ...] | None:
    """
    The used instances and the idle ones that can coexist with them, by start; None means that MIG mode stays
    off.

    Idle instances that conflict with used ones are destroyed: those with overlapping memory slices, and one
    with media extensions if a used instance has them, since a GPU has media extensions only once.
    """
    if gpu.mig is None and not used:
        return None
    in_use = set(used)
    taken = {piece for instance in in_use for piece in memory_slices(instance, geometry)}
    media = any(instance.profile.endswith(MEDIA_EXTENSIONS) for instance in in_use)
    stay = {
        instance
        for instance in gpu.mig or ()
        if instance in in_use
        or (
            taken.isdisjoint(memory_slices(instance, geometry))
            and not (media and instance.profile.endswith(MEDIA_EXTENSIONS))
        )
    }
    return tuple(sorted(in_use | stay, key=lambda instance: (instance.start, instance.profile)))


def memory_slices(instance: MigInstance | MigSlice, geometry: MigGeometry | None) -> range:
    """Memory slices of an instance; only the first one if its profile is unknown."""
    profile = geometry.profiles.get(instance.profile) if geometry else None
    return range(instance.start, instance.start + (profile.memory_slices if profile else 1))


# CPU and memory that a replica counts for on its node under overcommit.


def charged_cpu_memory(
    replica: Replica | ResourceRequest, qos: QosClass, cluster: Cluster
) -> tuple[int, int]:
    """Thousandths of cores and MiB of memory that a replica of a QoS class counts for on its node."""
    ratio = None if qos is QosClass.GUARANTEED else cluster.overcommit.get(qos)
    if ratio is None:
        return replica.cpu_milli, replica.memory_mib
    return (
        -(-replica.cpu_milli * MILLI // ratio.cpu_milli),
        -(-replica.memory_mib * MILLI // ratio.memory_milli),
    )
