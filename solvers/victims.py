"""Victims: who may be preempted from each node, and a rough count of what that would lose."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.solvers.fates import Leave

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner.models.problem import QueueBudget
    from planner.solvers.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]
    Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Victim:
    """An incumbent that may leave a node, or one replica of it that may."""

    incumbent: int
    positions: tuple[int, ...]
    """In its `holds`, those on the node."""
    loss: int
    """Points, positive."""
    milli: int
    """Thousandths of GPUs it frees on the node."""
    shrinks: bool
    rank: int

    @property
    def density(self) -> float:
        """Loss for each thousandth of a GPU it frees."""
        return self.loss / max(1, self.milli)


class _Table:
    """What those of a rank or below leave free on each node, and the least that costs."""

    def __init__(self, nodes: int) -> None:
        self.milli: Ints = np.zeros(nodes, dtype=np.int64)
        self.density: Floats = np.full(nodes, np.inf)
        self.seen = -1


class Victims:
    """The victims of every node, kept up to date with a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._on_node: dict[int, list[Victim]] = defaultdict(list)
        self._tables: dict[int, _Table] = {}
        self._below: dict[tuple[str, int], list[Victim]] = {}
        for index, incumbent in enumerate(ledger.problem.incumbents):
            for victim in _of_incumbent(ledger, index):
                node = incumbent.holds[victim.positions[0]].node
                if node is not None:
                    self._on_node[node].append(victim)
        for victims in self._on_node.values():
            victims.sort(key=lambda victim: (victim.density, not victim.shrinks, victim.incumbent))
        ranks = [victim.rank for victims in self._on_node.values() for victim in victims]
        self.least_rank = min(ranks, default=None)
        """Nobody of a smaller rank may preempt anybody; None if nobody may at all."""

    def there(self, node: int, rank: int) -> list[Victim]:
        """Victims on a node that a class of this rank may follow, who lose least per GPU first."""
        return [
            victim for victim in self._on_node.get(node, ()) if victim.rank <= rank and self._stays(victim)
        ]

    def below(self, budget: QueueBudget, queue: int, rank: int) -> Iterator[Victim]:
        """Victims that count against a limit of a queue, who lose least per GPU first."""
        key = budget.resource, queue
        if key not in self._below:
            self._below[key] = self._counted(budget, queue)
        for victim in self._below[key]:
            if victim.rank <= rank and self._stays(victim):
                yield victim

    def _counted(self, budget: QueueBudget, queue: int) -> list[Victim]:
        incumbents = self._ledger.problem.incumbents
        found = [
            victim
            for victims in self._on_node.values()
            for victim in victims
            if budget.counts(incumbents[victim.incumbent].gpu_model)
            and queue in _upwards(budget, incumbents[victim.incumbent].queue)
        ]
        return sorted(found, key=lambda victim: (victim.density, victim.incumbent, victim.positions))

    def rough_losses(self, nodes: Ints, milli: int, rank: int) -> Floats:
        """At least so much is lost on each of the nodes to fit one more replica; infinite if none can."""
        table = self._table(rank)
        left = self._ledger.capacity.gpu_left[nodes]
        missing = milli - left % milli if milli else np.ones(len(nodes), dtype=np.int64)
        losses = np.where(table.milli[nodes] > 0, table.density[nodes], np.inf) * missing
        return np.where(table.milli[nodes] >= (missing if milli else 0), losses, np.inf)

    def _table(self, rank: int) -> _Table:
        capacity = self._ledger.capacity
        table = self._tables.get(rank)
        if table is None:
            table = self._tables[rank] = _Table(len(capacity.nodes))
        if table.seen < capacity.version:
            stale = np.flatnonzero(capacity.changed_at > table.seen).tolist()
            for node in stale if table.seen >= 0 else self._on_node:
                there = self.there(node, rank)
                whole = {victim.incumbent: victim.milli for victim in there if not victim.shrinks}
                parts = [v.milli for v in there if v.shrinks and v.incumbent not in whole]
                table.milli[node] = sum(whole.values()) + sum(parts)
                table.density[node] = there[0].density if there else np.inf
            table.seen = capacity.version
        return table

    def _stays(self, victim: Victim) -> bool:
        fate = self._ledger.fates[victim.incumbent]
        if fate is None:
            return True
        return fate.leave is Leave.SHRINK and fate.given_up.isdisjoint(victim.positions)


def _upwards(budget: QueueBudget, queue: int) -> Iterator[int]:
    """A queue and all above it."""
    above: int | None = queue
    while above is not None:
        yield above
        above = budget.parent[above]


def _of_incumbent(ledger: Ledger, index: int) -> Iterator[Victim]:
    """An incumbent as a victim on each of its nodes, whole and replica by replica."""
    incumbent = ledger.problem.incumbents[index]
    on_node: dict[int, list[int]] = defaultdict(list)
    for position, hold in enumerate(incumbent.holds):
        if hold.node is not None:
            on_node[hold.node].append(position)
    milli, rank = incumbent.shape.quota_milli, incumbent.rank
    for positions in on_node.values():
        if incumbent.stop_points is not None:
            loss, freed = -incumbent.stop_points, milli * len(positions)
            yield Victim(index, tuple(positions), loss, freed, shrinks=False, rank=rank)
        if incumbent.shrinkable:
            loss = -incumbent.shrink_points - incumbent.resize_points
            for position in positions:
                yield Victim(index, (position,), loss, milli, shrinks=True, rank=rank)
