"""Future capacity: what nodes have free in each later slot, and how columns change it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from gpuplan.models.formulation.time_indexed.early_release import CapacityChanges
from gpuplan.models.mig import mig_geometry
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.cluster import MigInstance
    from gpuplan.models.formulation.columns_now import ColumnsNow
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.formulation.time_indexed.early_release import EarlyReleases, Place
    from gpuplan.models.problem.jobs import HeldResources, Incumbent

    Bools: TypeAlias = NDArray[np.bool_]
    Area: TypeAlias = tuple[int, ...]
    """Sorted node groups that a job may use."""
    from gpuplan.models.cluster import Level


WHOLE, SHARED, SLICES, FIRST_RESOURCE = 0, 1, 2, 3
"""Measures of a node: wholly free GPUs, thousandths of GPUs, memory slices; then the resources."""


class FutureCapacity:
    """
    Free capacity by slot and node if all running jobs stay until their expected end, and its changes by
    columns.

    Blocks of several GPUs do not add up, so each eviction pattern gives the blocks of a node under it. On
    crowded nodes the gains of single jobs are rounded up, since ⌊(a + b)/s⌋ ≤ ⌊a/s⌋ + ⌈b/s⌉. All other
    measures add up over the jobs that leave; a GPU shared by several jobs counts with each of them.
    """

    def __init__(self, x: ColumnsNow) -> None:
        problem = x.problem
        self.problem = problem
        self._measures = FIRST_RESOURCE + len(problem.resources)
        self._gpus: dict[int, Ints] = {}
        self.free: Ints = np.zeros((problem.slots, self._measures, len(problem.nodes)), dtype=np.int64)
        """Free amounts by slot, measure and node."""
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
        self.group_of = group_of
        self.departing = CapacityChanges(problem.slots, 1)
        """Changes of the blocks of whole GPUs."""
        self._departures(x, self.departing)
        self.leaving = CapacityChanges(problem.slots, self._measures)
        """Changes of all measures that add up."""
        self._incumbents(x, self.leaving)
        self._pools(x)
        self.departing.close(x.upper)
        self.leaving.close(x.upper)
        self.optional: Bools = np.zeros(len(problem.nodes), dtype=bool)
        """Nodes that do not exist yet."""
        self.optional[list(optional)] = True
        self.cost: Ints = np.zeros((problem.slots, len(problem.nodes)), dtype=np.int64)
        """By slot and node: points lost if all preemptible jobs have left it."""
        for incumbent in problem.incumbents:
            for node in {hold.node for hold in incumbent.holds if hold.node is not None}:
                self.cost[: incumbent.until, node] -= incumbent.stop_points or incumbent.leave_points

    def on(self, area: Area) -> Bools:
        """Nodes of an area."""
        found: Bools = np.isin(self.group_of, area)
        return found

    def total(self, area: Area, slot: int, measure: int) -> int:
        """Total of an additive measure over an area."""
        return int(self.free[slot, measure, self.on(area)].sum())

    def blocks(self, area: Area, slot: int, size: int) -> int:
        """Number of blocks of `size` wholly free GPUs on an area, each on one node."""
        return int((self.free[slot, WHOLE, self.on(area)] // size).sum())

    def blocks_gained(self, size: int) -> Ints:
        """Blocks of `size` GPUs that each of the `departing` columns adds, shape (columns, slots)."""
        changes = self.departing
        after, free = changes.states[:, :, 0], self.free[:, WHOLE].T[changes.node]
        steps: Ints = np.where(changes.rounded[:, None], -(-after // size), after // size - free // size)
        return steps

    def add_releases(self, gains: EarlyReleases, sizes: Sequence[int]) -> None:
        """Register the changes of sums, and of blocks of these sizes, per node group."""
        groups = range(len(self.problem.groups))
        sums, blocks = self.leaving, self.departing
        places: list[Place] = [("sums", group) for group in groups]
        gains.note(places, self.group_of[sums.node], sums.column, sums.states)
        places = [("blocks", group) for group in groups]
        steps = np.stack([self.blocks_gained(size) for size in sizes], axis=2)
        gains.note(places, self.group_of[blocks.node], blocks.column, steps)

    def _departures(self, x: ColumnsNow, blocks: CapacityChanges) -> None:
        for departure, column in x.out.items():
            holds = x.eviction_patterns.holds[departure.node]
            gone = {v: len(holds[v]) for v in (*departure.stopped, *departure.moved)}
            blocks.note(column, departure.node, self._whole(departure.node, gone | dict(departure.shrunk)))
        owner = {column: v for each in (x.stop, x.move) for v, column in each.items()}
        owner |= {column: v for (v, _), column in x.fates.given.items()}
        for node in sorted(x.eviction_patterns.crowded):
            for column, (gpus, _) in x.fates.gains(node):
                v = owner.get(column)
                until = self.problem.slots if v is None else self.problem.incumbents[v].until
                gain = np.zeros((self.problem.slots, 1), dtype=np.int64)
                gain[:until] = sum(milli > 0 for milli in gpus)
                blocks.note(column, node, gain, rounded=True)

    def _incumbents(self, x: ColumnsNow, sums: CapacityChanges) -> None:
        for v, incumbent in enumerate(self.problem.incumbents):
            by_node: dict[int, Ints] = {}
            for hold in incumbent.holds:
                if hold.node is not None:
                    by_node[hold.node] = by_node.get(hold.node, 0) + self._held(incumbent, hold, hold.node)
            for column in x.fates.leaves(v):
                for node, held in by_node.items():
                    sums.note(column, node, held, rounded=True)
            if v in x.shrink and by_node:
                # The model does not fix where it gives up replicas, so each of its node groups counts the
                # release in full.
                one = np.maximum.reduce(list(by_node.values()))
                groups = {int(self.group_of[node]): node for node in by_node}
                for node in groups.values():
                    sums.note(x.shrink[v], node, one, rounded=True)

    def _held(self, incumbent: Incumbent, hold: HeldResources, node: int) -> Ints:
        """Amounts that a replica releases if it leaves before its end, shape (slots, measures)."""
        geometry = self._geometry[node]
        slices = self._slices(node, (instance for _, instance in hold.slices))
        if geometry and self.problem.charges.switch_mode is not None:
            slices += len(hold.gpus) * geometry.memory_slices
        milli = len(hold.gpus) * (incumbent.shape.gpu_milli or MILLI)
        held = np.zeros((self.problem.slots, self._measures), dtype=np.int64)
        held[: incumbent.until] = [len(hold.gpus), milli, slices, *incumbent.shape.amounts]
        return held

    def _pools(self, x: ColumnsNow) -> None:
        def note(column: int, node: int, gain: Ints) -> None:
            self.departing.note(column, node, gain[:, [WHOLE]], rounded=True)
            self.leaving.note(column, node, gain, rounded=True)

        for opening in x.cells.expansions:
            note(opening.column, opening.nodes[0], self._state(opening.nodes[0], {}))
        holds = x.eviction_patterns.holds
        for closing in x.cells.reductions:
            nodes = [*closing.idle, *(node for node, _ in closing.emptied)]
            # Lower bound: the minimum over these equal nodes.
            gone = [{v: len(at) for v, at in holds.get(node, {}).items()} for node in nodes]
            empty = np.minimum.reduce(list(map(self._state, nodes, gone)))
            note(closing.column, nodes[0], -empty)

    def _whole(self, node: int, gone: dict[int, int]) -> Ints:
        """Wholly free GPUs of a node after running jobs gave up replicas as in `gone`; shape (slots, 1)."""
        gpus = self._gpus_of(node).copy()
        for v, replicas in gone.items():
            incumbent = self.problem.incumbents[v]
            milli = incumbent.shape.gpu_milli or MILLI
            for hold in [hold for hold in incumbent.holds if hold.node == node][:replicas]:
                gpus[: incumbent.until, list(hold.gpus)] += milli
        gpus[: self.problem.nodes[node].opens] = 0
        whole: Ints = (gpus >= MILLI).sum(axis=1, keepdims=True)
        return whole

    def _gpus_of(self, node: int) -> Ints:
        """Thousandths free by GPU of a node if all running jobs stay; shape (slots, GPUs)."""
        if node not in self._gpus:
            free = self.problem.nodes[node]
            gpus = np.tile(np.array(free.gpus, dtype=np.int64), (self.problem.slots, 1))
            for back in free.releases:
                for gpu, milli in back.gpus:
                    gpus[back.slot :, gpu] += milli
            self._gpus[node] = gpus
        return self._gpus[node]

    def _state(self, node: int, gone: dict[int, int]) -> Ints:
        """
        Free amounts of a node, shape (slots, measures).

        `gone` has the number of replicas that running jobs have given up there, the first of their holds.
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
        for each in free.releases:
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


def _places(hold: HeldResources) -> tuple[object, ...]:
    return hold.gpus, hold.slices


# Domain blocks: how many gangs with a required domain fit in later slots, as sets of GPU blocks in one
# domain. A linear relaxation would clear a small fraction of every domain, wherever that is cheap. So gains
# count only on the most expensive nodes of a domain: those without which its other nodes do not suffice.


class BlockGang(NamedTuple):
    """Attributes of a gang that decide where it can be placed."""

    level: Level
    replicas: int
    gpus: int
    """GPUs of each replica."""


class DomainBlocks:
    """Bundles for one gang on one area, by slot; a bundle is the set of blocks of one gang in one domain."""

    def __init__(self, ahead: FutureCapacity, area: Area, gang: BlockGang) -> None:
        self._ahead, self._gang, self._nodes = ahead, gang, ahead.on(area)
        self.place: Place = ("bundles", *area, *gang)
        self._of = np.array(ahead.problem.domain_of(gang.level), dtype=np.int64)
        self._blocks: Ints = np.where(self._nodes, ahead.free[:, WHOLE] // gang.gpus, 0)
        """Blocks by slot and node."""
        self._held = np.stack([self._by_domain(blocks) for blocks in self._blocks])
        self.free: Ints = (self._held // gang.replicas).sum(axis=1)
        """Bundles by slot while all running jobs stay."""

    def add_releases(self, gains: EarlyReleases) -> None:
        """
        Register the gains of columns, in thousandths of a bundle.

        A gain is at most what the column could complete alone: ⌊(a + b)/R⌋ ≤ ⌊a/R⌋ + ⌈b/R⌉.
        """
        changes = self._ahead.departing
        here = np.flatnonzero(self._nodes[changes.node])
        columns, nodes, most = changes.column[here], changes.node[here], changes.most[here]
        steps = self._ahead.blocks_gained(self._gang.gpus)[here]
        parts = np.zeros_like(steps)
        for slot in range(1, steps.shape[1]):
            brought = steps[:, slot]
            lacking = self._lacking(slot, nodes, most * np.maximum(0, brought))[nodes]
            part = np.where(lacking > 0, -(-MILLI * brought // np.maximum(1, lacking)), 0)
            alone = MILLI * -(-brought // self._gang.replicas)
            parts[:, slot] = np.where(brought < 0, alone, np.minimum(alone, part))
        gains.note([self.place], np.zeros_like(columns), columns, parts[:, :, None])

    def _lacking(self, slot: int, nodes: Ints, brought: Ints) -> Ints:
        """
        By node, the blocks that the most expensive nodes of its domain must supply for one more bundle there.

        It is 0 for the other nodes, which are as many of the cheapest as leave a shortage. It is also 0 for
        domains that are too small or have too large a shortage. Columns add at most `brought` to each
        node.
        """
        ahead, replicas, held = self._ahead, self._gang.replicas, self._held[slot]
        room = np.bincount(nodes, weights=brought, minlength=len(self._of)).astype(np.int64)
        most = np.maximum(0, ahead.gpus // self._gang.gpus - self._blocks[slot])
        room = np.where(ahead.optional, room, np.minimum(room, most))
        missing = replicas - held % replicas
        reached = held + self._by_domain(room) >= held + missing
        order = np.lexsort((ahead.cost[slot], self._of))
        domain = self._of[order]
        before = np.append(0, np.cumsum(room[order]))
        so_far = before[1:] - before[np.searchsorted(domain, domain)]
        spared = np.zeros(len(room), dtype=bool)
        spared[order] = so_far < missing[domain]
        lacking = np.where(reached, missing - self._by_domain(np.where(spared, room, 0)), 0)
        return np.where(spared, 0, lacking[self._of])

    def _by_domain(self, amounts: Ints) -> Ints:
        count = int(self._of.max()) + 1
        return np.bincount(self._of, weights=amounts, minlength=count).astype(np.int64)
