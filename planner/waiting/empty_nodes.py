"""Capacity of empty nodes; nodes that offer the same share one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.planner.waiting.free_capacity import FreeCapacity, NodeRoom

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.planner.waiting.eligible_nodes import EligibleNodes
    from gpuplan.planner.waiting.mig_capacity import MigCapacity


class EmptyNodes:
    """Pools of a set of nodes without any jobs on them."""

    def __init__(self, nodes: Sequence[Node], mig: MigCapacity) -> None:
        """Keep the nodes; `mig` is the MIG capacity without placements."""
        self._nodes, self._mig = nodes, mig
        first: dict[Hashable, int] = {}
        alike = (first.setdefault(_offer(node), index) for index, node in enumerate(nodes))
        self._first_alike = np.fromiter(alike, np.int64, len(nodes))
        self._kinds: dict[EligibleNodes, FreeCapacity] = {}
        self._all: dict[EligibleNodes, FreeCapacity] = {}

    def kinds(self, match: EligibleNodes) -> FreeCapacity:
        """Return the matching nodes, one of each kind."""
        if match not in self._kinds:
            self._kinds[match] = self._pool(np.unique(self._first_alike[match.indices]).tolist())
        return self._kinds[match]

    def all(self, match: EligibleNodes) -> FreeCapacity:
        """Return all matching nodes."""
        if match not in self._all:
            self._all[match] = self._pool(match.nodes)
        return self._all[match]

    def _pool(self, indices: Iterable[int]) -> FreeCapacity:
        nodes = (self._nodes[index] for index in indices)
        return FreeCapacity([NodeRoom(node, FreeResources.of(node), self._mig) for node in nodes])


def _offer(node: Node) -> Hashable:
    """Everything that jobs can use of an empty node."""
    gpus = node.gpus
    return (
        (gpus.model, gpus.count, gpus.details) if gpus else None,
        (node.cpu_milli, node.memory_mib, node.disk_mib),
        frozenset(node.resources.items()),
    )
