"""FreePool: what a set of nodes has free, and how many replicas of a request that makes."""

from __future__ import annotations

from bisect import bisect_left
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planner.models.job import ResourceRequest
    from planner.models.occupancy import NodeFree

# Each has a space in it, which no name of a countable resource has.
GPUS: Final = "whole gpus"
"""Of one node."""
SHARE: Final = "gpu share"
"""Thousandths of one GPU."""
CPU: Final = "cpu milli"
MEMORY: Final = "memory mib"
DISK: Final = "disk mib"

_AMOUNT: Final[dict[str, Callable[[NodeFree], int]]] = {
    GPUS: lambda node: node.gpu_milli.count(MILLI),
    SHARE: lambda node: max(node.gpu_milli, default=0),
    CPU: lambda node: node.cpu_milli,
    MEMORY: lambda node: node.memory_mib,
    DISK: lambda node: node.disk_mib,
}


def needs_of(request: ResourceRequest) -> dict[str, int]:
    """What one replica needs by dimension, the one people look at first in front; nothing at 0."""
    needs = {
        GPUS: request.gpus,
        SHARE: request.gpu_milli,
        CPU: request.cpu_milli,
        MEMORY: request.memory_mib,
        DISK: request.disk_mib,
        **dict(sorted(request.resources.items())),
    }
    return {dimension: need for dimension, need in needs.items() if need}


class FreePool:
    """
    Free amounts of some nodes, indexed so that a request meets few of them.

    Thousands of different requests are counted against thousands of nodes. Every dimension is kept sorted,
    and a request only looks at the nodes that have enough of its scarcest one.
    """

    def __init__(self, nodes: Sequence[NodeFree]) -> None:
        self._nodes = nodes
        self._gpu_milli = sum(max(0, milli) for node in nodes for milli in node.gpu_milli)
        self._totals: dict[str, int] = {}
        self._columns: dict[str, list[int]] = {}
        self._ranks: dict[str, tuple[list[int], list[int]]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def largest(self, dimension: str) -> int:
        """Most that one node (for a share: one GPU) has free."""
        return max(self._column(dimension), default=0)

    def having(self, dimension: str, need: int) -> int:
        """Nodes with at least so much."""
        return len(self) - bisect_left(self._rank(dimension)[1], need)

    def total(self, dimension: str) -> int:
        """Free in all; for GPUs and shares in thousandths, parts of GPUs included."""
        if dimension in (GPUS, SHARE):
            return self._gpu_milli
        if dimension not in self._totals:
            self._totals[dimension] = sum(self._column(dimension))
        return self._totals[dimension]

    def fitting(self, needs: Mapping[str, int], enough: int) -> int:
        """Replicas with such needs that find room at the same time, counted until there are enough."""
        if not needs:
            return enough if self._nodes else 0
        count = 0
        for index in self._fewest(needs):
            count += min(self._times(index, dimension, need) for dimension, need in needs.items())
            if count >= enough:
                return enough
        return count

    def _fewest(self, needs: Mapping[str, int]) -> list[int]:
        """Nodes with enough of the scarcest dimension."""
        ranked = ((*self._rank(dimension), need) for dimension, need in needs.items())
        first, order = max(
            ((bisect_left(amounts, need), order) for order, amounts, need in ranked), key=itemgetter(0)
        )
        return order[first:]

    def _rank(self, dimension: str) -> tuple[list[int], list[int]]:
        """Nodes by free amount, ascending, and these amounts."""
        rank = self._ranks.get(dimension)
        if rank is None:
            column = self._column(dimension)
            order = sorted(range(len(column)), key=column.__getitem__)
            rank = self._ranks[dimension] = order, [column[index] for index in order]
        return rank

    def _times(self, index: int, dimension: str, need: int) -> int:
        if dimension == SHARE:
            return sum(milli // need for milli in self._nodes[index].gpu_milli if milli > 0)
        return self._column(dimension)[index] // need

    def _column(self, dimension: str) -> list[int]:
        """Free amount by node, never negative."""
        column = self._columns.get(dimension)
        if column is None:
            column = self._columns[dimension] = [max(0, _amount(node, dimension)) for node in self._nodes]
        return column


def _amount(node: NodeFree, dimension: str) -> int:
    amount = _AMOUNT.get(dimension)
    return amount(node) if amount else node.resources.get(dimension, 0)
