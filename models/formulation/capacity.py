"""GroupCapacity: free amounts of one node group as arrays, and the sums of floors rows are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.models.formulation.rows import Ints
    from planner.models.problem import Problem, Shape


class GroupCapacity:
    """Free capacity of the nodes of a group."""

    def __init__(self, problem: Problem, group: int) -> None:
        nodes = [problem.nodes[index] for index in problem.groups[group].nodes]
        width = max((len(node.gpus) for node in nodes), default=0)
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64).reshape(len(nodes), width)
        self.free = np.array([node.amounts for node in nodes], dtype=np.int64)
        """Shape (nodes, resources)."""
        self.whole: Ints = (gpus == MILLI).sum(axis=1)
        """Wholly free GPUs of each node."""
        self.gpus = gpus
        """Thousandths free, shape (nodes, GPUs)."""
        self.partial = gpus[(gpus > 0) & (gpus < MILLI)]
        """Thousandths free of the GPUs already shared."""
        self._room: dict[Shape, int] = {}

    @property
    def whole_gpus(self) -> int:
        """Wholly free GPUs of the group."""
        return int(self.whole.sum())

    def room(self, shape: Shape) -> int:
        """Replicas of one shape that fit the group, were it all for them."""
        if (known := self._room.get(shape)) is None:
            known = self._room[shape] = int(self._room_by_node(shape).sum())
        return known

    def _room_by_node(self, shape: Shape) -> Ints:
        if shape.gpus:
            room: Ints = self.whole // shape.gpus
        elif shape.gpu_milli:
            room = (self.gpus // shape.gpu_milli).sum(axis=1)
        else:
            room = np.full(len(self.free), np.iinfo(np.int32).max, dtype=np.int64)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.free[:, resource] // amount)
        return room

    def units(self, size: int, cheapest: Iterable[tuple[int, int, int]]) -> int:
        """
        Blocks of `size` wholly free GPUs that can be in use at once.

        Each (resource, amount, blocks) says that nothing uses a block for less than amount / blocks of that
        resource, so a node's free amount limits its blocks too.
        """
        blocks = self.whole // size
        for resource, amount, per in cheapest:
            blocks = np.minimum(blocks, self.free[:, resource] * per // amount)
        return int(blocks.sum())

    def floors(self, resource: int, unit: int) -> int:
        """Σ_n ⌊free amount / unit⌋."""
        return int((self.free[:, resource] // unit).sum())

    def share_floors(self, unit: int) -> int:
        """Σ ⌊free thousandths / unit⌋ over GPUs already shared."""
        return int((self.partial // unit).sum())

    def largest(self, resource: int) -> int:
        """Largest free amount of a resource on one node."""
        return int(self.free[:, resource].max(initial=0))
