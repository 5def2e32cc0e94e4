"""What is held in later slots: quota and GPUs that are free now and promised to others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import Placement
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.quota_headroom import QuotaRoom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.planner.analysis.projected_schedule import Future, Stay


class HeldLater:
    """Answers for one plan; a slot begins before others end in it, so that everything counts to its end."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._rooms: dict[int, QuotaRoom] = {}
        self._free: dict[tuple[str, int], int] = {}

    def room(self, slot: int) -> QuotaRoom:
        """What the queues hold in a slot, and may."""
        if slot not in self._rooms:
            there = [
                Placement(job=name, replicas=stay.replicas)
                for name, stay in sorted(self._future.stays.items())
                if stay.slot <= slot < stay.until
            ]
            self._rooms[slot] = QuotaRoom(self._future.snapshot, there, added=self._future.target.added)
        return self._rooms[slot]

    def places(self, nodes: Iterable[Node], need: int, until: int) -> int:
        """At most so many replicas find GPUs on nodes up to a slot, each needing so many thousandths."""
        return sum(self._free_until(node, until) // need for node in nodes)

    def promised(self, nodes: Iterable[Node], until: int) -> list[Stay]:
        """Promised starts on nodes before a slot, the earliest first."""
        found = {
            stay.job.name: stay
            for node in nodes
            for stay in self._future.on_node.get(node.name, ())
            if 0 < stay.slot < until and self._future.planned[stay.job.name].promised
        }
        return sorted(found.values(), key=lambda stay: (stay.slot, stay.job.name))

    def _free_until(self, node: Node, until: int) -> int:
        """Thousandths of its GPUs that are free in every slot before one."""
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
