"""
Free capacity of nodes, which of their GPUs a replica takes, and what the state of the GPUs costs.

No more is taken than is free. Each change records its node, so that boards look again only at changed nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.mig import profile_milli
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import Shape
from gpuplan.models.units import MILLI
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage
from gpuplan.solvers.state.constraints.mig_state import MigInventory
from gpuplan.solvers.state.stranded_gpus import StrandedGpus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import HeldResources
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import Span
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.constraints.mig_state import MigRequest
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


class MigCostArrays:
    """`mig_state.MigCost` for many nodes, as arrays."""

    def __init__(self, count: int) -> None:
        self.room: Bools = np.zeros(count, dtype=bool)
        self.points: Ints = np.zeros(count, dtype=np.int64)
        self.lost: Ints = np.zeros(count, dtype=np.int64)
        self.switches: Bools = np.zeros(count, dtype=bool)


class NodeCapacities(Constraint):
    """Free GPUs, MIG instances and other amounts of every node."""

    def __init__(self, problem: Problem, numbers_on: Mapping[int, set[int]]) -> None:
        """`numbers_on` has the new jobs on each node."""
        self.nodes = problem.nodes
        widest = max((group.gpus for group in problem.groups), default=0)
        count = len(problem.nodes)
        self.gpu_free: Ints = np.zeros((count, max(1, widest)), dtype=np.int64)
        """Free thousandths, shape (nodes, GPUs)."""
        for index, node in enumerate(problem.nodes):
            self.gpu_free[index, : len(node.gpus)] = node.gpus
        self.free: Ints = np.array([node.amounts for node in problem.nodes], dtype=np.int64).reshape(
            count, len(problem.resources)
        )
        """Shape (nodes, resources)."""
        self.balance: list[list[int]] = [list(node.amounts) for node in problem.nodes]
        """The same, but negative where running jobs hold more than the node has."""
        for balance, node in zip(self.balance, problem.nodes, strict=True):
            for resource, overdrawn in enumerate(node.overdrawn):
                balance[resource] -= overdrawn
        self.mig = MigInventory(problem)
        self.gpu_left: Ints = self.gpu_free.sum(axis=1) + np.array(
            [self.mig.free_milli(node) for node in range(count)], dtype=np.int64
        )
        self.whole: Ints = (self.gpu_free == MILLI).sum(axis=1)
        """Number of wholly free GPUs of each node."""
        self.has_gpus: Bools = np.array([bool(node.gpus) for node in problem.nodes], dtype=bool)
        self.stranded_gpus = StrandedGpus.of(
            problem, self.gpu_left, np.array(self.balance, dtype=np.int64).reshape(self.free.shape)
        )
        self.usable: Bools = np.ones(count, dtype=bool)
        """False for nodes that do not exist: not opened yet, or closed."""
        self.replicas: Ints = np.zeros(count, dtype=np.int64)
        """Replicas on each node, including those of running jobs that may leave, now or in a later slot."""
        for incumbent in problem.incumbents:
            for hold in incumbent.holds:
                if hold.node is not None:
                    self.replicas[hold.node] += 1
        for group in problem.groups:
            if group.pool is not None:
                self.usable[list(group.nodes)] = False
        self.changes: list[int] = []
        """Nodes that changed, in order: a reader looks again at those recorded since its last look."""
        self.changed_at: Ints = np.zeros(count, dtype=np.int64)
        """By node, the length of `changes` after its last change."""
        self._problem, self._numbers_on = problem, numbers_on
        self._waste_price = problem.charges.fragmentation
        self._reference = problem.charges.reference_gpus
        self._waste_points = 0

    @property
    def points(self) -> int:
        """Points of changed MIG layouts, and of free GPUs too few for a replica of the reference gang."""
        return self._waste_points + self.mig.points

    def touch(self, nodes: int | Ints) -> None:
        """Mark nodes as changed."""
        self.changes += [nodes] if isinstance(nodes, int) else nodes.tolist()
        self.changed_at[nodes] = len(self.changes)

    def set_usable(self, node: int, usable: bool) -> None:
        """Open or close a node."""
        self.usable[node] = usable
        self._waste_points += self._waste(int(self.whole[node])) * (-1 if usable else 1)
        self.touch(node)

    def find(
        self, shape: Shape, node: int, first: Collection[int] = (), shut: Collection[int] = ()
    ) -> ReplicaSite:
        """
        Site of a replica on a node with room: whole GPUs close together; for a share the fullest that fits.

        GPUs in `first` are preferred if they are enough; GPUs in `shut` are never taken.
        """
        if shape.mig:
            return ReplicaSite(node, slices=tuple(self.mig.find(node, shape.mig, self.whole_gpus(node))[0]))
        if shape.gpus:
            free = [gpu for gpu in self.whole_gpus(node) if gpu not in shut]
            liked = [gpu for gpu in free if gpu in first] if first else free
            free = liked if len(liked) >= shape.gpus else free
            return ReplicaSite(node, choose_gpus(free, self.nodes[node].gpu_groups, shape.gpus))
        if shape.gpu_milli:
            fitting = [
                (milli, gpu not in first, gpu)
                for gpu, milli in enumerate(self.gpu_free[node].tolist())
                if milli >= shape.gpu_milli and gpu not in shut
            ]
            return ReplicaSite(node, (min(fitting)[2],))
        return ReplicaSite(node)

    def whole_gpus(self, node: int) -> list[int]:
        """Indices of the wholly free GPUs of a node."""
        return [gpu for gpu, milli in enumerate(self.gpu_free[node].tolist()) if milli == MILLI]

    def fits(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """See `Constraint`."""
        return span[0] > 0 or self._fits(self._problem.classes[index].shape, site, amounts=True)

    def fits_back(self, incumbent: int, site: ReplicaSite) -> bool:
        """See `Constraint`; jobs that ask for more than a node has may continue while no new job is there."""
        overdrawn = self.nodes[site.node].overdrawn and not self._numbers_on.get(site.node)
        return self._fits(self._problem.incumbents[incumbent].shape, site, amounts=not overdrawn)

    def _fits(self, shape: Shape, site: ReplicaSite, *, amounts: bool) -> bool:
        node, needed = site.node, shape.gpu_milli or MILLI
        return (
            bool(self.usable[node])
            and all(self.gpu_free[node, gpu] >= needed for gpu in site.gpus)
            and not (amounts and (self.free[node] < shape.amounts).any())
            and (not site.slices or self.mig.fits(node, site.slices, self.whole_gpus(node)))
        )

    def take(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """See `Constraint`; of later starts only that there are some is kept here."""
        self.replicas[site.node] += times
        if span[0] == 0:
            self._charge(self._problem.classes[index].shape, site, times)
        else:
            self.touch(site.node)

    def leave(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        """See `Constraint`."""
        self.replicas[site.node] -= times
        self._charge(self._problem.incumbents[incumbent].shape, site, -times)

    def _charge(self, shape: Shape, site: ReplicaSite, replicas: int) -> None:
        node = site.node
        if site.gpus:
            free, milli = self.gpu_free[node], replicas * (shape.gpu_milli or MILLI)
            for gpu in site.gpus:
                free[gpu] -= milli
        if site.slices:
            for gpu in self.mig.charge(node, site.slices, replicas):
                self.gpu_free[node, gpu] -= replicas * MILLI
        if site.gpus or site.slices:
            taken = len(site.gpus) * (shape.gpu_milli or MILLI)
            taken += sum(profile_milli(profile) for _, profile, _ in site.slices)
            self.gpu_left[node] -= replicas * taken
            self._count_whole(node)
        balance, amounts_free = self.balance[node], self.free[node]
        for resource, amount in enumerate(shape.amounts):
            if amount:
                balance[resource] -= replicas * amount
                amounts_free[resource] = max(0, balance[resource])
        self.changes.append(node)
        self.changed_at[node] = len(self.changes)

    def reserve(self, node: int, gpu: int, places: Iterable[tuple[str, int]]) -> None:
        """Keep MIG instances on a GPU for jobs placed later, if the GPU is free for that."""
        if self.mig.in_mig_mode(node, gpu) or (self.gpu_free[node, gpu] == MILLI and self.mig.offers(node)):
            if self.mig.reserve(node, gpu, places):
                self.gpu_free[node, gpu] -= MILLI
            self._count_whole(node)
            self.touch(node)

    def release(self, node: int, gpu: int) -> None:
        """Keep no instances on a GPU any longer."""
        if self.mig.in_mig_mode(node, gpu):
            if self.mig.release(node, gpu):
                self.gpu_free[node, gpu] += MILLI
            self._count_whole(node)
            self.touch(node)

    def room(self, shape: Shape, nodes: Ints, most: int) -> Ints:
        """See `Constraint`."""
        return self._room(shape, np.where(self.usable[nodes], most, 0), nodes)

    def _room(self, shape: Shape, most: Ints, nodes: Ints) -> Ints:
        room = most
        if shape.gpus:
            room = np.minimum(room, self.whole[nodes] // shape.gpus)
        elif shape.gpu_milli:
            room = np.minimum(room, (self.gpu_free[nodes] // shape.gpu_milli).sum(axis=1))
        for resource, amount in enumerate(shape.amounts):
            if amount:
                room = np.minimum(room, self.free[nodes, resource] // amount)
        room = np.maximum(room, 0)
        for position in np.flatnonzero(room).tolist() if shape.mig else ():
            node, count = int(nodes[position]), int(room[position])
            room[position] = len(self.mig.find(node, shape.mig, self.whole_gpus(node), count))
        return room

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`; a node that a pool may open counts as if it were open."""
        shape, nodes, replicas = places.job_class.shape, places.nodes, places.replicas
        enough = np.full(len(nodes), replicas, dtype=np.int64)
        if places.limit(self._room(shape, enough, nodes)):
            return None
        usable = self.usable[nodes]
        found = int(places.room[usable].sum())
        for resource, need, free in self._totals(shape, nodes):
            if int(free.sum()) < need * replicas:
                numbers = {"needed": need * replicas, "free": int(free[usable].sum()), "found": found}
                return Shortage(ReasonCode.RESOURCES, {"resource": resource, **numbers})
        code = ReasonCode.FRAGMENTED
        if shape.mig and self._room(Shape(0, 0, (), shape.mig), enough, nodes).sum() < replicas:
            code = ReasonCode.LAYOUT_BLOCKED
        return Shortage(code, {"replicas": replicas, "found": found})

    def _totals(self, shape: Shape, nodes: Ints) -> Iterator[tuple[str, int, Ints]]:
        """Resources of which a replica needs some: name, need, and what is free on each of the nodes."""
        if shape.gpus or shape.gpu_milli:
            need = shape.gpus * MILLI + shape.gpu_milli
            yield "gpus", need, np.maximum(0, self.gpu_free[nodes]).sum(axis=1)
        if shape.mig:
            slices = [self.mig.free_slices(node, self.whole_gpus(node)) for node in nodes.tolist()]
            need = min((self.mig.slices_of(node, shape.mig) for node in nodes.tolist()), default=0)
            yield "memory_slices", need, np.array(slices, dtype=np.int64)
        for position, (name, amount) in enumerate(zip(self._problem.resources, shape.amounts, strict=True)):
            if amount:
                yield name, amount, self.free[nodes, position]

    def supports_mig(self, nodes: Ints) -> Bools:
        """True for nodes with GPUs in MIG mode, or with GPUs that may be switched to it."""
        return np.array([self.mig.offers(node) for node in nodes.tolist()], dtype=bool)

    def mig_costs(self, wish: MigRequest, nodes: Ints, where: Bools) -> MigCostArrays:
        """Cost of one more replica with MIG instances on the nodes at the marked positions."""
        found = MigCostArrays(len(nodes))
        for position in np.flatnonzero(where).tolist():
            node = int(nodes[position])
            if self.mig.offers(node):
                outlook = self.mig.outlook(node, wish, self.whole_gpus(node))
                if outlook is not None:
                    found.room[position] = True
                    found.points[position] = outlook.points
                    found.lost[position] = outlook.lost
                    found.switches[position] = outlook.switches
        return found

    def price(self, tenant: PlacementProfile, nodes: Ints) -> Ints | None:
        """See `Constraint`: the change in useless free GPUs; MIG layouts are priced by `mig_costs`."""
        shape = tenant.shape
        if not self._waste_price or not shape.quota_milli:
            return None
        whole = self.whole[nodes]
        if shape.gpus:
            after = whole - shape.gpus
        elif shape.gpu_milli:
            free = self.gpu_free[nodes]
            shared = ((free >= shape.gpu_milli) & (free < MILLI)).any(axis=1)
            after = whole - np.where(shared, 0, 1)
        else:
            after = whole
        price: Ints = self._waste_price * (whole % self._reference - np.maximum(0, after) % self._reference)
        return price

    def _count_whole(self, node: int) -> None:
        before = int(self.whole[node])
        after = self.gpu_free[node].tolist().count(MILLI)
        self.whole[node] = after
        counts = self.usable[node] and not self.nodes[node].opens  # nothing is wasted before a node opens
        if self._waste_price and before != after and counts:
            self._waste_points += self._waste(before) - self._waste(after)

    def _waste(self, whole: int) -> int:
        return self._waste_price * (whole % self._reference)


def choose_gpus(free: list[int], groups: Sequence[tuple[int, int]], count: int) -> tuple[int, ...]:
    """
    Choose `count` free GPUs in as few NVLink groups, and within these in as few NUMA nodes, as possible.

    `groups` is (NVLink group, NUMA node) by GPU index; without it all GPUs are one group. The smallest group
    with enough GPUs is taken, so that large ones stay whole.
    """
    if not groups:
        return tuple(free[:count])
    return tuple(sorted(_nearest(free, groups, count, level=0)))


def _nearest(free: list[int], groups: Sequence[tuple[int, int]], count: int, *, level: int) -> list[int]:
    if level == 2 or count >= len(free):
        return free[:count]
    members: dict[int, list[int]] = defaultdict(list)
    for gpu in free:
        members[groups[gpu][level]].append(gpu)
    enough = [gpus for gpus in members.values() if len(gpus) >= count]
    if enough:
        smallest = min(enough, key=lambda gpus: (len(gpus), gpus))
        return _nearest(smallest, groups, count, level=level + 1)
    largest = min(members.values(), key=lambda gpus: (-len(gpus), gpus))
    rest = [gpu for gpu in free if gpu not in largest]
    return largest + _nearest(rest, groups, count - len(largest), level=level)


class HypotheticalNode:
    """Free GPUs and amounts of a node; MIG instances and power are left out."""

    def __init__(self, capacity: NodeCapacities, node: int) -> None:
        self._gpus: list[int] = capacity.gpu_free[node].tolist()
        self._free = list(capacity.balance[node])

    def leave(self, shape: Shape, holds: Iterable[HeldResources], times: int = 1) -> None:
        """Remove replicas from this hypothetical node; `times` -1 adds them back."""
        milli = times * (shape.gpu_milli or MILLI)
        for hold in holds:
            for gpu in hold.gpus:
                self._gpus[gpu] += milli
            for resource, amount in enumerate(shape.amounts):
                self._free[resource] += times * amount

    def room(self, shape: Shape) -> int:
        """Replicas that would fit, as `NodeCapacities.room` counts them on a usable node."""
        counts = [
            max(0, free) // amount for free, amount in zip(self._free, shape.amounts, strict=True) if amount
        ]
        if shape.gpus:
            counts.append(self._gpus.count(MILLI) // shape.gpus)
        elif shape.gpu_milli:
            counts.append(sum(milli // shape.gpu_milli for milli in self._gpus))
        return min(counts, default=2**31)
