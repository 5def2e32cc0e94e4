"""Nodes of pools that are opened or removed, and the cost of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.ledger_over_time import LedgerOverTime
from gpuplan.solvers.state.undo_log import UndoLog

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem


class LedgerWithPools(LedgerOverTime, UndoLog):
    """Openings with nodes that may be opened and removed, step by step."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        LedgerOverTime.__init__(self, problem, params)
        UndoLog.__init__(self)
        self.opened: dict[int, int] = {}
        """Opened nodes, with their pools."""
        self.closed: dict[int, int] = {}
        """Nodes to be removed, with their pools."""
        self.pool_points = 0

    def open(self, pool: int) -> int | None:
        """Open the next node of a pool; None if there is none."""
        for group in self.problem.groups:
            for node in group.nodes if group.pool == pool else ():
                if node not in self.opened:
                    self.step(self._set_open, (node, pool, True), (node, pool, False))
                    return node
        return None

    def shut(self, node: int) -> None:
        """Cancel the opening of an unused node."""
        pool = self.opened[node]
        self.step(self._set_open, (node, pool, False), (node, pool, True))

    def close(self, node: int) -> bool:
        """Remove a node that is empty, or emptied by migration, if its pool may lose one; False otherwise."""
        if self.replica_counts[node] or node in self.closed or self.floors.had_preemption(node):
            return False
        for index, pool in enumerate(self.problem.pools):
            if node in pool.closable and list(self.closed.values()).count(index) < pool.most_closed:
                self.step(self._set_closed, (node, index, True), (node, index, False))
                return True
        return False

    def cancel_close(self, node: int) -> None:
        """Keep a node that was to be removed."""
        pool = self.closed[node]
        self.step(self._set_closed, (node, pool, False), (node, pool, True))

    def _set_open(self, node: int, pool: int, opened: bool) -> None:
        if opened:
            self.opened[node] = pool
        else:
            del self.opened[node]
        self.pool_points -= self.problem.pools[pool].opening_points * (1 if opened else -1)
        self.capacity.set_usable(node, opened)

    def _set_closed(self, node: int, pool: int, closed: bool) -> None:
        if closed:
            self.closed[node] = pool
        else:
            del self.closed[node]
        self.pool_points += (self.problem.nodes[node].closing_points or 0) * (1 if closed else -1)
        self.capacity.set_usable(node, not closed)
