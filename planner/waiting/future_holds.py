"""Quota and GPUs that are free now but held in later slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import Placement
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule


class FutureHolds:
    """Holdings of one plan in later slots; a job counts in the whole slot in which it ends."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._rooms: dict[int, QuotaHeadroom] = {}
        self._free: dict[tuple[str, int], int] = {}

    def room(self, slot: int) -> QuotaHeadroom:
        """Return usage and limits of the queues in a slot."""
        if slot not in self._rooms:
            there = [
                Placement(job=name, replicas=stay.replicas)
                for name, stay in sorted(self._future.stays.items())
                if stay.slot <= slot < stay.until
            ]
            self._rooms[slot] = QuotaHeadroom(self._future.snapshot, there, added=self._future.target.added)
        return self._rooms[slot]

    def places(self, nodes: Iterable[Node], need: int, until: int) -> int:
        """Upper bound on replicas that fit on nodes up to a slot; each needs `need` thousandths of GPUs."""
        return sum(self._free_until(node, until) // need for node in nodes)

    def promised(self, nodes: Iterable[Node], until: int) -> list[JobInterval]:
        """Return the promised starts on nodes before a slot, earliest first."""
        found = {
            stay.job.name: stay
            for node in nodes
            for stay in self._future.on_node.get(node.name, ())
            if 0 < stay.slot < until and self._future.planned[stay.job.name].promised
        }
        return sorted(found.values(), key=lambda stay: (stay.slot, stay.job.name))

    def _free_until(self, node: Node, until: int) -> int:
        """Thousandths of a node's GPUs that are free in every slot before `until`."""
        if node.gpus is None:
            return 0
        if (node.name, until) not in self._free:
            held = [0] * until
            for stay in self._future.on_node.get(node.name, ()):
                milli = sum(each.quota_milli for each in stay.replicas if each.node == node.name)
                for slot in range(stay.slot, min(stay.until, until)):
                    held[slot] += milli
            offered = MILLI * sum(gpu.healthy for gpu in node.gpus.by_index.values())
            self._free[node.name, until] = max(0, offered - max(held))
        return self._free[node.name, until]
