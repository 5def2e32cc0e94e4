"""
Node classes: the nodes of one node group in one set of domains, under the same joint limits.

Every node is in exactly one node class. Its supply is a constant plus a sum over columns. A node is in its
base state while all running jobs stay, or in the state of one eviction pattern. Every right-hand side of the
packing rows is a sum over nodes of a function of their state, such as ⌊free GPUs / 4⌋.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.eligibility.preemption_order import may_use_freed
from gpuplan.models.mig import mig_geometry
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuplan.models.cluster import Level
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.structure.eviction_patterns import EvictionPattern
    from gpuplan.models.formulation.structure.incumbent_variables import IncumbentColumns
    from gpuplan.models.formulation.structure.replica_types import ReplicaType
    from gpuplan.models.problem.jobs import Shape
    from gpuplan.models.problem.problem import Problem

    Swap: TypeAlias = tuple[int, int, int, int]
    """(column, state added, state removed, node); node is −1 where it may be one of several."""

_MIG_SLICES = 7
"""Upper bound on the MIG instances of one GPU."""


class ObservedStates:
    """States of the nodes of one group while they are collected; equal states are merged."""

    def __init__(self, problem: Problem, group: int) -> None:
        self._problem, self._group = problem, group
        self._found: dict[tuple[tuple[int, ...], tuple[int, ...], bool], int] = {}

    def add(self, gpus: Sequence[int], amounts: Sequence[int], *, rounded: bool = False) -> int:
        """
        Index of a state with these thousandths free by GPU and these amounts by resource.

        With `rounded` it is not a state but the gain of a node: functions of it are rounded up, since ⌊(a +
        b)/s⌋ ≤ ⌊a/s⌋ + ⌈b/s⌉.
        """
        return self._found.setdefault((tuple(gpus), tuple(amounts), rounded), len(self._found))

    def closed(self) -> NodeStates:
        """All states as arrays."""
        return NodeStates(self._problem, self._group, tuple(self._found))


class NodeStates:
    """All states of the nodes of one group; in the last one nothing is free."""

    def __init__(
        self, problem: Problem, group: int, free: Sequence[tuple[Sequence[int], Sequence[int], bool]]
    ) -> None:
        """Each entry of `free`: thousandths by GPU, amounts by resource, and whether it is a rounded gain."""
        width = max((len(gpus) for gpus, _, _ in free), default=0)
        rows = [*free, ([0] * width, [0] * len(problem.resources), False)]
        self.nothing = len(free)
        """Index of the state in which nothing is free."""
        self.rounded = np.array([rounded for _, _, rounded in rows], dtype=bool)
        """True for a gain: functions of it are rounded up."""
        gpus = np.array([milli for milli, _, _ in rows], dtype=np.int64).reshape(len(rows), width)
        self.gpus: Ints = gpus
        """Thousandths free, shape (states, GPUs)."""
        self.amounts = np.array([amounts for _, amounts, _ in rows], dtype=np.int64)
        """Amounts free, shape (states, resources)."""
        self.whole: Ints = (gpus == MILLI).sum(axis=1)
        """Wholly free GPUs of each state."""
        # Wholly free GPUs become shares only through `opened`, so they are no part of what is free for these.
        self._partial = np.where(gpus < MILLI, gpus, 0)
        model = problem.groups[group].gpu_model
        self._may_switch = problem.charges.switch_mode is not None and bool(model and mig_geometry(model))
        self._mig_gpus = max(
            (len(problem.nodes[node].mig) for node in problem.groups[group].nodes), default=0
        )
        self._room: dict[Shape, Ints] = {}

    def room(self, shape: Shape) -> Ints:
        """Upper bound on the replicas of one shape that fit each state."""
        if (known := self._room.get(shape)) is None:
            known = self._room[shape] = self._room_of(shape)
        return known

    def _room_of(self, shape: Shape) -> Ints:
        if shape.gpus:
            room: Ints = self.whole // shape.gpus
        elif shape.gpu_milli:
            room = (self.gpus // shape.gpu_milli).sum(axis=1)
        elif shape.mig:
            instances = sum(count for _, count in shape.mig)
            gpus = self._mig_gpus + (self.whole if self._may_switch else np.zeros_like(self.whole))
            room = gpus * _MIG_SLICES // instances
        else:
            # Plenty, but not the largest int64: it is summed over nodes.
            room = np.full(len(self.whole), np.iinfo(np.int32).max, dtype=np.int64)
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.amounts[:, resource] // amount)
        room[self.nothing] = 0
        return room

    def blocks(self, size: int, cheapest: Iterable[tuple[int, int, int]] = ()) -> Ints:
        """
        Number of blocks of `size` wholly free GPUs in each state.

        Each (resource, amount, blocks) says that no replica uses a block with less than amount / blocks of
        that resource, so the free amount of a node limits its blocks too.
        """
        found = self._steps(self.whole, size)
        for resource, amount, per in cheapest:
            allowed = self._steps(self.amounts[:, resource] * per, amount)
            # A gain may be of one resource only, where the node lacked another, so it takes the maximum.
            found = np.where(self.rounded, np.maximum(found, allowed), np.minimum(found, allowed))
        return found

    def floors(self, resource: int, unit: int) -> Ints:
        """⌊free amount / unit⌋."""
        return self._steps(self.amounts[:, resource], unit)

    def share_floors(self, unit: int) -> Ints:
        """Σ ⌊free thousandths / unit⌋ over partly used GPUs."""
        rounded = self.rounded[:, np.newaxis]
        floors: Ints = np.where(rounded, -(-self._partial // unit), self._partial // unit).sum(axis=1)
        return floors

    def _steps(self, amounts: Ints, unit: int) -> Ints:
        """Whole units in each amount; units of a gain are rounded up."""
        steps: Ints = np.where(self.rounded, -(-amounts // unit), amounts // unit)
        return steps


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
            parts[(*(domain[node] for domain in domains), *problem.joint_limits(node))].append(node)
        for _, members in sorted(parts.items()):
            if (pool := problem.groups[group].pool) is None:
                self._add_part(group, members, base, of_departure, gains)
            else:
                column = self._new(len(members))
                self.expansions.append(PoolExpansion(pool, column, tuple(members)))
                # Nodes of a pool are equal, so one state stands for each that is opened.
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

    def room_for(self, cell: int, kind: ReplicaType) -> int:
        """
        Upper bound on the replicas of a type that fit a node class, as what preemption frees has its takers.

        Jobs that it may not follow stay unless they can move, since their places are then free for any job.
        """
        room = self.room(cell, kind.shape)
        if kind.shape.mig or not room:
            return room
        departures = self._departures
        staying = {
            v
            for node in self.all[cell].nodes
            for v in departures.holds.get(node, ())
            for each in (self.problem.incumbents[v],)
            if each.move is None and not may_use_freed(kind, (each.rank, frozenset(each.claims)))
        }
        if not staying:
            return room
        nodes = self.all[cell].nodes
        free = [(*departures.free(departures.all_leave(node, staying)), False) for node in nodes]
        beside = NodeStates(self.problem, self.all[cell].group, free).room(kind.shape)
        return min(room, int(beside[: len(nodes)].sum()))


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
