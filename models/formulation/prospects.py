"""Prospects: what nodes will have free in each later slot, and what columns change about that."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from planner.models.mig import mig_geometry
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from planner.models.cluster import Level, MigInstance
    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Ints
    from planner.models.problem_jobs import Hold, Incumbent

    Bools: TypeAlias = NDArray[np.bool_]
    Measure: TypeAlias = tuple[int, Ints, Ints]
    """Constant, columns, coefficients."""

WHOLE, SHARED, SLICES, FIRST_RESOURCE = 0, 1, 2, 3
"""What is measured of a node: wholly free GPUs, thousandths of GPUs, memory slices; then resources."""


class Prospects:
    """
    What is free by slot and node while everybody stays until the expected end, and what columns change.

    Blocks of several GPUs do not add up, so departures say what a node has of them once they took place;
    on crowded nodes the gains of each incumbent are rounded up, since ⌊(a + b)/s⌋ ≤ ⌊a/s⌋ + ⌈b/s⌉. All else
    adds up, each incumbent bringing its own; that of a GPU which several share is counted with each of them.
    """

    def __init__(self, x: Columns) -> None:
        problem = x.problem
        self.problem = problem
        self._measures = FIRST_RESOURCE + len(problem.resources)
        self.free: Ints = np.zeros((problem.slots, self._measures, len(problem.nodes)), dtype=np.int64)
        """By slot, measure and node."""
        self._geometry = {
            node: mig_geometry(group.gpu_model or "") for group in problem.groups for node in group.nodes
        }
        optional = {node for group in problem.groups if group.pool is not None for node in group.nodes}
        for node in range(len(problem.nodes)):
            if node not in optional:
                self.free[:, :, node] = self._state(node, {})
        self.gpus = np.array([len(node.gpus) - len(node.unhealthy) for node in problem.nodes], dtype=np.int64)
        group_of = np.zeros(len(problem.nodes), dtype=np.int64)
        for number, group in enumerate(problem.groups):
            group_of[list(group.nodes)] = number
        self._group_of = group_of
        self.blocks = _Changes(problem.slots, self._measures)
        """What changes the blocks of whole GPUs."""
        self._departures(x, self.blocks)
        self.sums = _Changes(problem.slots, self._measures)
        """What changes all that adds up."""
        self._incumbents(x, self.sums)
        self._pools(x)
        self.blocks.close()
        self.sums.close()

    def supply(self, area: Sequence[int], slot: int) -> Supply:
        """What the groups of an area offer in a slot."""
        return Supply(self, np.isin(self._group_of, list(area)), slot)

    def _departures(self, x: Columns, blocks: _Changes) -> None:
        for departure, column in x.out.items():
            holds = x.departures.holds[departure.node]
            gone = {v: len(holds[v]) for v in (*departure.stopped, *departure.moved)}
            blocks.note(column, departure.node, self._state(departure.node, gone | dict(departure.shrunk)))
        owner = {column: v for each in (x.stop, x.move) for v, column in each.items()}
        owner |= {column: v for (v, _), column in x.fates.given.items()}
        for node in sorted(x.departures.crowded):
            for column, (gpus, _) in x.fates.gains(node):
                v = owner.get(column)
                until = self.problem.slots if v is None else self.problem.incumbents[v].until
                gain = np.zeros((self.problem.slots, self._measures), dtype=np.int64)
                gain[:until, WHOLE] = sum(milli > 0 for milli in gpus)
                blocks.note(column, node, gain, rounded=True)

    def _incumbents(self, x: Columns, sums: _Changes) -> None:
        for v, incumbent in enumerate(self.problem.incumbents):
            by_node: dict[int, Ints] = {}
            for hold in incumbent.holds:
                if hold.node is not None:
                    by_node[hold.node] = by_node.get(hold.node, 0) + self._held(incumbent, hold, hold.node)
            for column in x.fates.leaves(v):
                for node, held in by_node.items():
                    sums.note(column, node, held, rounded=True)
            if v in x.shrink and by_node:
                # Where it gives up replicas is not said: counted in full wherever it has any.
                one = np.maximum.reduce(list(by_node.values()))
                groups = {int(self._group_of[node]): node for node in by_node}
                for node in groups.values():
                    sums.note(x.shrink[v], node, one, rounded=True)

    def _held(self, incumbent: Incumbent, hold: Hold, node: int) -> Ints:
        """What a replica gives up that leaves before its end, shape (slots, measures)."""
        geometry = self._geometry[node]
        slices = self._slices(node, (instance for _, instance in hold.slices))
        if geometry and self.problem.charges.switch_mode is not None:
            slices += len(hold.gpus) * geometry.memory_slices
        milli = len(hold.gpus) * (incumbent.shape.gpu_milli or MILLI)
        held = np.zeros((self.problem.slots, self._measures), dtype=np.int64)
        held[: incumbent.until] = [len(hold.gpus), milli, slices, *incumbent.shape.amounts]
        return held

    def _pools(self, x: Columns) -> None:
        def note(column: int, node: int, gain: Ints) -> None:
            for changes in (self.blocks, self.sums):
                changes.note(column, node, gain, rounded=True)

        for opening in x.cells.openings:
            note(opening.column, opening.nodes[0], self._state(opening.nodes[0], {}))
        holds = x.departures.holds
        for closing in x.cells.closings:
            nodes = [*closing.idle, *(node for node, _ in closing.emptied)]
            # The least that any of these equal nodes could have offered.
            gone = [{v: len(at) for v, at in holds.get(node, {}).items()} for node in nodes]
            empty = np.minimum.reduce(list(map(self._state, nodes, gone)))
            note(closing.column, nodes[0], -empty)

    def _state(self, node: int, gone: dict[int, int]) -> Ints:
        """
        What a node has free, shape (slots, measures).

        `gone` has how many of their replicas there incumbents have given up, the first of their holds.
        """
        problem, free = self.problem, self.problem.nodes[node]
        gpus = np.tile(np.array(free.gpus, dtype=np.int64), (problem.slots, 1))
        rest = np.zeros((problem.slots, 1 + len(problem.resources)), dtype=np.int64)
        geometry = self._geometry[node]
        per_gpu = geometry.memory_slices if geometry else 0
        used = (instance for gpu in free.mig for instance in gpu.used)
        rest[:, 0] = per_gpu * len(free.mig) - self._slices(node, used)
        rest[:, 1:] = np.array(free.amounts) - np.array(free.overdrawn or 0)
        given = [
            (v, hold)
            for v, replicas in gone.items()
            for hold in [hold for hold in problem.incumbents[v].holds if hold.node == node][:replicas]
        ]
        for v, hold in given:
            gpus[:, list(hold.gpus)] += problem.incumbents[v].shape.gpu_milli or MILLI
            slices = self._slices(node, (instance for _, instance in hold.slices))
            rest += np.array([slices, *problem.incumbents[v].shape.amounts])
        void = [(v, _places(hold)) for v, hold in given]
        for each in free.returns:
            key = each.incumbent, (tuple(gpu for gpu, _ in each.gpus), each.slices)
            if key in void:
                void.remove(key)
                continue
            for gpu, milli in each.gpus:
                gpus[each.slot :, gpu] += milli
            slices = self._slices(node, (instance for _, instance in each.slices))
            rest[each.slot :] += np.array([slices, *each.amounts])
        whole = (gpus >= MILLI).sum(axis=1)
        if problem.charges.switch_mode is not None:
            rest[:, 0] += whole * per_gpu
        state = np.column_stack([whole, gpus.sum(axis=1), rest])
        state[: free.opens] = 0
        free_then: Ints = np.maximum(0, state)
        return free_then

    def _slices(self, node: int, instances: Iterable[MigInstance]) -> int:
        """Memory slices of MIG instances on a node."""
        geometry = self._geometry[node]
        known = geometry.profiles if geometry else {}
        return sum(known[each.profile].memory_slices for each in instances if each.profile in known)


class _Changes:
    """Columns, each with a node and what is free there then, or what the node gains if rounded."""

    def __init__(self, slots: int, measures: int) -> None:
        self._shape = slots, measures
        self._columns: list[int] = []
        self._nodes: list[int] = []
        self._rounded: list[bool] = []
        self._states: list[Ints] = []

    def note(self, column: int, node: int, state: Ints, *, rounded: bool = False) -> None:
        """Take in one column; `state` has shape (slots, measures)."""
        self._columns.append(column)
        self._nodes.append(node)
        self._states.append(state)
        self._rounded.append(rounded)

    def close(self) -> None:
        """No more are coming: make arrays of them."""
        self.column = np.array(self._columns, dtype=np.int64)
        self.node = np.array(self._nodes, dtype=np.int64)
        self.rounded = np.array(self._rounded, dtype=bool)
        self.states: Ints = np.array(self._states, dtype=np.int64).reshape(len(self._states), *self._shape)


class Supply:
    """What some nodes offer in one slot: a constant and a sum over columns, one measure after the other."""

    def __init__(self, ahead: Prospects, nodes: Bools, slot: int) -> None:
        """`nodes` marks those that count."""
        self._ahead, self._slot, self._nodes = ahead, slot, nodes
        self._changed = {
            changes: np.flatnonzero(nodes[changes.node]) for changes in (ahead.blocks, ahead.sums)
        }

    def blocks(self, size: int) -> Measure:
        """Blocks of so many wholly free GPUs, each on one node."""
        changes, changed = self._ahead.blocks, self._changed[self._ahead.blocks]
        free = self._ahead.free[self._slot, WHOLE]
        after, rounded = changes.states[changed, self._slot, WHOLE], changes.rounded[changed]
        before = np.where(rounded, 0, free[changes.node[changed]])
        steps = np.where(rounded, -(-after // size), after // size) - before // size
        return int((free[self._nodes] // size).sum()), *self._summed(changes, steps)

    def domain_blocks(self, level: Level, size: int) -> Measure:
        """Blocks of so many wholly free GPUs, each in one domain of a level."""
        ahead, changes = self._ahead, self._ahead.sums
        free = ahead.free[self._slot, WHOLE]
        of = np.array(ahead.problem.domain_of(level), dtype=np.int64)
        held = np.bincount(of[self._nodes], weights=free[self._nodes], minlength=of.max() + 1)
        held = held.astype(np.int64)
        changed = self._changed[changes]
        gains = changes.states[changed, self._slot, WHOLE]
        # What leaves a domain that is too small anyway, or that still lacks too much, makes no block of it.
        where = of[changes.node[changed]]
        most = held + np.bincount(where, weights=np.maximum(0, gains), minlength=len(held)).astype(np.int64)
        most = np.minimum(most, np.bincount(of, weights=ahead.gpus, minlength=len(held)).astype(np.int64))
        reached = most // size > held // size
        steps = np.where(reached[where] | (gains < 0), -(-gains // size), 0)
        return int((held // size).sum()), *self._summed(changes, steps)

    def total(self, measure: int) -> Measure:
        """All there is of something that adds up."""
        changes = self._ahead.sums
        constant = int(self._ahead.free[self._slot, measure][self._nodes].sum())
        return constant, *self._summed(changes, changes.states[self._changed[changes], self._slot, measure])

    def _summed(self, changes: _Changes, gains: Ints) -> tuple[Ints, Ints]:
        """Each column once: an incumbent may be on several nodes."""
        columns, position = np.unique(changes.column[self._changed[changes]], return_inverse=True)
        return columns, np.bincount(position, weights=gains, minlength=len(columns)).astype(np.int64)


def _places(hold: Hold) -> tuple[object, ...]:
    return hold.gpus, hold.slices
