"""Nodes of pools that a plan opens or removes, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.constraints.capacity import NodeCapacities
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.constraints.preemption_ranks import PreemptionRanks
    from gpuplan.solvers.state.undo_log import UndoLog


class NodePools(Constraint):
    """Opened and closed nodes; only empty nodes without a preemption are closed."""

    def __init__(
        self, problem: Problem, capacity: NodeCapacities, ranks: PreemptionRanks, undo: UndoLog
    ) -> None:
        self._problem, self._capacity, self._ranks, self._undo = problem, capacity, ranks, undo
        self.opened: dict[int, int] = {}
        """Opened nodes, with their pools."""
        self.closed: dict[int, int] = {}
        """Nodes to be removed, with their pools."""
        self._points = 0

    @property
    def points(self) -> int:
        """See `Constraint`."""
        return self._points

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`: only nodes that are not open have room."""
        usable = self._capacity.usable[places.nodes]
        closed = int(np.count_nonzero(~usable & (places.room > 0)))
        if places.limit(np.where(usable, places.replicas, 0)):
            return None
        return Shortage(ReasonCode.NOT_CHOSEN, {"closed_nodes": closed})

    def may_give_up(self, incumbent: int, positions: Collection[int]) -> bool:
        """See `Constraint`; a node is not closed where a job was preempted."""
        holds = self._problem.incumbents[incumbent].holds
        return not self.closed or all(holds[position].node not in self.closed for position in positions)

    def open(self, pool: int) -> int | None:
        """Open the next node of a pool; None if there is none."""
        for group in self._problem.groups:
            for node in group.nodes if group.pool == pool else ():
                if node not in self.opened:
                    self._undo.step(self._set_open, (node, pool, True), (node, pool, False))
                    return node
        return None

    def cancel_open(self, node: int) -> None:
        """Cancel the opening of an unused node."""
        pool = self.opened[node]
        self._undo.step(self._set_open, (node, pool, False), (node, pool, True))

    def close(self, node: int) -> bool:
        """Remove a node that is empty, or emptied by migration, if its pool may lose one; False otherwise."""
        if self._capacity.replicas[node] or node in self.closed or self._ranks.had_preemption(node):
            return False
        for index, pool in enumerate(self._problem.pools):
            if node in pool.closable and list(self.closed.values()).count(index) < pool.most_closed:
                self._undo.step(self._set_closed, (node, index, True), (node, index, False))
                return True
        return False

    def cancel_close(self, node: int) -> None:
        """Keep a node that was to be removed."""
        pool = self.closed[node]
        self._undo.step(self._set_closed, (node, pool, False), (node, pool, True))

    def _set_open(self, node: int, pool: int, opened: bool) -> None:
        if opened:
            self.opened[node] = pool
        else:
            del self.opened[node]
        self._points -= self._problem.pools[pool].opening_points * (1 if opened else -1)
        self._capacity.set_usable(node, opened)

    def _set_closed(self, node: int, pool: int, closed: bool) -> None:
        if closed:
            self.closed[node] = pool
        else:
            del self.closed[node]
        self._points += (self._problem.nodes[node].closing_points or 0) * (1 if closed else -1)
        self._capacity.set_usable(node, not closed)
