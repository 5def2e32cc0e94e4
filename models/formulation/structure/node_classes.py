"""
Node class: the nodes of one node group in one set of domains.

Every node is in exactly one node class. Its supply is a constant plus a sum over columns.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.formulation.structure.node_states import ObservedStates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.structure.eviction_patterns import EvictionPattern
    from gpuplan.models.formulation.structure.incumbent_variables import IncumbentColumns
    from gpuplan.models.formulation.structure.node_states import NodeStates
    from gpuplan.models.formulation.structure.replica_types import ReplicaType
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

    Swap: TypeAlias = tuple[int, int, int, int]
    """(column, state added, state removed, node); node is −1 where it may be one of several."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes of one node group in the same domains."""

    group: int
    nodes: tuple[int, ...]
    constant: Ints
    """States that always count."""
    columns: Ints
    """Columns that add one state and remove another."""
    brought: Ints
    taken: Ints
    changed: Ints
    """Position in `nodes` of the node that changes its state; −1 where it may be one of several."""
    reachable: Ints
    """(position in `nodes`, state) of all states that a node may be in, shape (pairs, 2)."""


@dataclass(frozen=True, slots=True)
class PoolExpansion:
    """Nodes of a pool that may be opened, all in the same domains."""

    pool: int
    column: int
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolReduction:
    """Equal nodes of a pool, in the same domains, that may be removed when empty."""

    pool: int
    column: int
    points: int
    """Points of each removed node."""
    idle: tuple[int, ...]
    """Nodes that are empty while all running jobs stay."""
    emptied: tuple[tuple[int, int], ...]
    """(node, column that is 1 if it is emptied)."""


class NodeClasses:
    """All node classes of a problem, and the states of their nodes."""

    def __init__(
        self,
        problem: Problem,
        kinds: Sequence[ReplicaType],
        fates: IncumbentColumns,
        new: Callable[[int], int],
    ) -> None:
        """Create the node classes; `new` makes a column with an upper bound."""
        self.problem = problem
        self._fates = fates
        self._departures = fates.eviction_patterns
        self._new = new
        self._pool_of = {node: pool for pool, option in enumerate(problem.pools) for node in option.closable}
        self.states: list[NodeStates] = []
        """By node group."""
        self.all: list[NodeClass] = []
        self.of_group: dict[int, tuple[int, ...]] = {}
        """Node classes of each node group."""
        self.of: dict[int, int] = {}
        """Node class of each node."""
        self.expansions: list[PoolExpansion] = []
        self.reductions: list[PoolReduction] = []
        levels = _levels_by_group(problem, kinds)
        for group in range(len(problem.groups)):
            self._add_group(group, [problem.domain_of(level) for level in sorted(levels[group])])

    def _add_group(self, group: int, domains: list[tuple[int, ...]]) -> None:
        problem, nodes = self.problem, self.problem.groups[group].nodes
        states = ObservedStates(problem, group)
        base = {node: states.add(problem.nodes[node].gpus, problem.nodes[node].amounts) for node in nodes}
        of_departure: dict[EvictionPattern, int] = {}
        gains: dict[int, list[tuple[int, int]]] = {}
        for node in nodes:
            for departure in self._departures.by_node.get(node, ()):
                of_departure[departure] = states.add(*self._departures.free(departure))
            if node in self._departures.crowded:
                gains[node] = [
                    (column, states.add(*gain, rounded=True)) for column, gain in self._fates.gains(node)
                ]
                all_leave = self._departures.all_leave(node)
                of_departure[all_leave] = states.add(*self._departures.free(all_leave))
        self.states.append(states.closed())
        parts: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for node in nodes:
            capped = tuple(node in cap.nodes for cap in problem.power_caps)
            parts[(*(domain[node] for domain in domains), *capped)].append(node)
        for _, members in sorted(parts.items()):
            if (pool := problem.groups[group].pool) is None:
                self._add_part(group, members, base, of_departure, gains)
            else:
                column = self._new(len(members))
                self.expansions.append(PoolExpansion(pool, column, tuple(members)))
                swaps = [(column, base[members[0]], self.states[group].nothing, -1)]
                reachable = [(node, base[node]) for node in members]
                self._add(group, members, [], swaps, reachable)

    def _add_part(
        self,
        group: int,
        nodes: list[int],
        base: dict[int, int],
        of_departure: dict[EvictionPattern, int],
        gains: dict[int, list[tuple[int, int]]],
    ) -> None:
        nothing, departures = self.states[group].nothing, self._departures
        swaps: list[Swap] = []
        empty: dict[int, int] = {}
        emptied_by: dict[int, int] = {}
        reachable: list[tuple[int, int]] = []
        for node in nodes:
            reachable.append((node, base[node]))
            leaving = departures.by_node.get(node, ())
            if node not in departures.holds and node not in departures.pinned_nodes:
                empty[node] = base[node]
            if node in departures.crowded:
                all_leave = of_departure[departures.all_leave(node)]
                reachable.append((node, all_leave))
                swaps += [(column, state, nothing, node) for column, state in gains[node]]
                if node in self._fates.emptied:
                    empty[node] = all_leave
                    emptied_by[node] = self._fates.emptied[node]
            for departure in leaving:
                state, column = of_departure[departure], self._fates.out[departure]
                reachable.append((node, state))
                if departures.empties(departure):
                    empty[node], emptied_by[node] = state, column
                swaps.append((column, state, base[node], node))
        swaps += self._closings(group, empty, emptied_by)
        self._add(group, nodes, [base[node] for node in nodes], swaps, reachable)

    def _closings(self, group: int, empty: dict[int, int], emptied_by: dict[int, int]) -> list[Swap]:
        """Columns that remove nodes of one node class; `empty` has the state of each node while empty."""
        states, swaps = self.states[group], []
        alike: dict[tuple[int, int, tuple[int, ...]], list[int]] = defaultdict(list)
        for node, state in empty.items():
            points = self.problem.nodes[node].closing_points
            if points is not None and node in self._pool_of:
                what = (*states.gpus[state].tolist(), *states.amounts[state].tolist())
                alike[self._pool_of[node], points, what].append(node)
        for (pool, points, _), nodes in sorted(alike.items()):
            column = self._new(len(nodes))
            idle = tuple(node for node in nodes if node not in emptied_by)
            emptied = tuple((node, emptied_by[node]) for node in nodes if node in emptied_by)
            self.reductions.append(PoolReduction(pool, column, points, idle, emptied))
            swaps.append((column, states.nothing, empty[nodes[0]], -1))
        return swaps

    def _add(
        self,
        group: int,
        nodes: list[int],
        constant: list[int],
        swaps: list[Swap],
        reachable: list[tuple[int, int]],
    ) -> None:
        position = len(self.all)
        at = {node: number for number, node in enumerate(nodes)}
        located = [(*swap, at.get(node, -1)) for *swap, node in swaps]
        table = np.array(located, dtype=np.int64).reshape(len(swaps), 4)
        states = np.array(constant, dtype=np.int64)
        pairs = np.array([(at[node], state) for node, state in reachable], dtype=np.int64).reshape(-1, 2)
        columns, brought, taken, changed = table.T
        self.all.append(NodeClass(group, tuple(nodes), states, columns, brought, taken, changed, pairs))
        self.of_group[group] = (*self.of_group.get(group, ()), position)
        self.of |= dict.fromkeys(nodes, position)

    def domain(self, cell: int, level: Level) -> int:
        """The domain of all nodes of a node class, for a level that matters in its node group."""
        return self.problem.domain_of(level)[self.all[cell].nodes[0]]

    def supply(self, cell: int, by_state: Ints) -> tuple[int, Ints, Ints]:
        """Supply of a node class, given the supply of each state: constant, columns, coefficients."""
        found = self.all[cell]
        return (
            int(by_state[found.constant].sum()),
            found.columns,
            by_state[found.brought] - by_state[found.taken],
        )

    def room(self, cell: int, shape: Shape) -> int:
        """Upper bound on the replicas of one shape that fit a node class."""
        found = self.all[cell]
        room = self.states[found.group].room(shape)
        most = np.zeros(len(found.nodes), dtype=np.int64)
        np.maximum.at(most, found.reachable[:, 0], room[found.reachable[:, 1]])
        return int(most.sum())


def _levels_by_group(problem: Problem, kinds: Sequence[ReplicaType]) -> list[set[Level]]:
    """Levels at which the domain of a replica matters, for each node group."""
    levels: list[set[Level]] = [set() for _ in problem.groups]
    for kind in kinds:
        rules = kind.together
        used = {level for level in (rules.required, rules.preferred, rules.spread) if level is not None}
        for groups in kind.groups:
            for group in groups:
                levels[group] |= used
    return levels
