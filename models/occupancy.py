"""What is free on each node once given placements are in force: plain accounting, no rule is judged here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.models.placement import GpuShare
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.cluster import Node
    from planner.models.placement import Placement, Replica


@dataclass(slots=True)
class NodeFree:
    """Free amounts on one node; negative where running jobs already hold more than there is."""

    gpu_milli: list[int]
    """Thousandths free by GPU index; 0 where the GPU is unhealthy or in MIG mode."""
    cpu_milli: int
    memory_mib: int
    disk_mib: int
    resources: dict[str, int]
    mig_used: set[tuple[int, int]]
    """(GPU index, start) of MIG instances in use."""

    @classmethod
    def of(cls, node: Node) -> NodeFree:
        """Everything the node offers, with nothing placed."""
        gpus = node.gpus.by_index.values() if node.gpus else ()
        return cls(
            gpu_milli=[MILLI if gpu.healthy and gpu.mig is None else 0 for gpu in gpus],
            cpu_milli=node.cpu_milli,
            memory_mib=node.memory_mib,
            disk_mib=node.disk_mib,
            resources=dict(node.resources),
            mig_used=set(),
        )

    def take(self, replica: Replica) -> None:
        """Subtract what a replica holds."""
        for held in replica.gpus:
            if not isinstance(held, GpuShare):
                self.mig_used.add((held.index, held.start))
            elif held.index < len(self.gpu_milli):
                self.gpu_milli[held.index] -= held.milli
        self.cpu_milli -= replica.cpu_milli
        self.memory_mib -= replica.memory_mib
        self.disk_mib -= replica.disk_mib
        for name, amount in replica.resources.items():
            self.resources[name] = self.resources.get(name, 0) - amount

    def holds(self, replica: Replica) -> bool:
        """True if the replica fits into what is free."""
        shares: dict[int, int] = {}
        for held in replica.gpus:
            if not isinstance(held, GpuShare):
                if (held.index, held.start) in self.mig_used:
                    return False
            else:
                shares[held.index] = shares.get(held.index, 0) + held.milli
        return (
            all(
                index < len(self.gpu_milli) and milli <= self.gpu_milli[index]
                for index, milli in shares.items()
            )
            and replica.cpu_milli <= self.cpu_milli
            and replica.memory_mib <= self.memory_mib
            and replica.disk_mib <= self.disk_mib
            and all(amount <= self.resources.get(name, 0) for name, amount in replica.resources.items())
        )


def free_capacity(nodes: Iterable[Node], placements: Iterable[Placement]) -> dict[str, NodeFree]:
    """Free amounts by node name; replicas on unknown nodes are passed over."""
    free = {node.name: NodeFree.of(node) for node in nodes}
    for placement in placements:
        for replica in placement.replicas:
            if replica.node in free:
                free[replica.node].take(replica)
    return free
