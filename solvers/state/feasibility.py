"""
Eligible nodes for replicas of a class now, and their cost.

Nodes are scored once per tenant, and again only where something changes. So the cost follows tenants times
nodes plus replicas, not jobs times nodes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from gpuplan.models.policy.policy import Profile
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.constraints.affinity import AffinityIndex
from gpuplan.solvers.state.constraints.capacity import NodeCapacities
from gpuplan.solvers.state.constraints.constraint import Constraint, methods
from gpuplan.solvers.state.constraints.disruptions import Disruptions
from gpuplan.solvers.state.constraints.power import PowerCaps
from gpuplan.solvers.state.constraints.preemption_ranks import PreemptionRanks, VictimSets
from gpuplan.solvers.state.placement_profile import NO_AFFINITY, PlacementProfile, interned
from gpuplan.solvers.state.resource_timeline import PLENTY, ResourceTimeline
from gpuplan.solvers.state.stranded_gpus import COST_SCALE
from gpuplan.solvers.state.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]
    Floats: TypeAlias = NDArray[np.float64]

    Scorer: TypeAlias = Callable[[Shape, Ints, Ints, Ints], Floats]
    """
    Cost of a replica of a shape on nodes, given their free thousandths of GPUs and free amounts.

    From 0 to 1, the least first; of equal ones the first node.
    """


class Feasibility:
    """Free capacity, jobs that share it, and the rules and prices that follow."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        self.problem, self.params = problem, params
        self.domains = Topology(problem)
        self.numbers_on: dict[int, set[int]] = defaultdict(set)
        """Numbers of the new jobs placed on each node."""
        self.capacity = NodeCapacities(problem, self.numbers_on)
        self.victims = VictimSets(problem, params.preemption)
        self.preemption_ranks = PreemptionRanks(problem, self.capacity, self.victims)
        self.disruptions = Disruptions(problem, self.capacity)
        self.affinity = AffinityIndex(problem, self.domains, self.capacity, self.disruptions)
        self.scarcity_cost = self._scarcity_cost()
        """Cost of a GPU's scarcity on each node, on the scale of `StrandedGpus`; None if no GPU is scarce."""
        self.group_of = [0] * len(problem.nodes)
        for index, group in enumerate(problem.groups):
            for node in group.nodes:
                self.group_of[node] = index
        self._group_of: Ints = np.array(self.group_of, dtype=np.int64)
        self._nodes_of: dict[tuple[int, ...], Ints] = {}
        self.tenants = interned(
            PlacementProfile.of(problem, each, traits)
            for each, traits in zip(problem.classes, self.affinity.traits, strict=True)
        )
        self.node_points = {
            tenant.node_points: self._by_node(tenant.node_points)
            for tenant in self.tenants
            if tenant.node_points
        }
        """Points of a replica on each node, by `PlacementProfile.node_points`."""
        self._optional = ~self.capacity.usable
        """Nodes that do not exist yet."""
        self._has_optional = bool(self._optional.any())
        self.timeline = ResourceTimeline(problem) if problem.slots > 1 else None
        """Free capacity in later slots; None if there are none."""
        self.undisturbed = (
            ResourceTimeline(problem, undisturbed=True) if problem.slots > 1 and problem.may_disturb else None
        )
        """
        The same beside running jobs as they run now; None if these cannot change.

        Later starts of waiting jobs must fit there too: they count on nothing that a plan takes from them.
        """
        self.timelines = tuple(each for each in (self.timeline, self.undisturbed) if each is not None)
        self.constraints = self._constraints()
        """The rules about nodes that concern this problem, the most severe shortages first."""
        self._rooms = methods(self.constraints[1:], "room")
        self._admits = methods(self.constraints, "admits")
        self._admits_later = methods(self.constraints, "admits_later")
        self._prices = methods(self.constraints, "price")
        self._has_joint_limits = bool(problem.jointly_limited)
        self.scorer: Scorer | None = None
        """Cost of a replica on a node beside points; it replaces the profile of the class."""

    def _constraints(self) -> tuple[Constraint, ...]:
        problem, found = self.problem, list[Constraint]((self.capacity, *self.timelines))
        if problem.power_caps:
            found.append(PowerCaps(problem, self.capacity, self.timelines, self.victims, self.numbers_on))
        found.append(self.domains)
        if problem.incumbents:
            found += (self.disruptions, self.disruptions.budgets, self.preemption_ranks)
        if not self.affinity.is_idle:
            found.append(self.affinity)
        return tuple(found)

    def nodes_of(self, option: Option) -> Ints:
        """Nodes of an option, in order."""
        if (nodes := self._nodes_of.get(option.groups)) is None:
            nodes = np.flatnonzero(np.isin(self._group_of, option.groups))
            self._nodes_of[option.groups] = nodes
        return nodes

    def nodes_within(self, option: Option, nodes: Ints) -> Ints:
        """The nodes that belong to an option."""
        found: Ints = nodes[np.isin(self._group_of[nodes], option.groups)]
        return found

    def room(self, index: int, nodes: Ints, most: int) -> Ints:
        """Replicas of a class that fit on each of the nodes if used for them alone; at most `most`."""
        tenant = self.tenants[index]
        room = self.free_room(tenant.shape, nodes, most)
        freed = np.flatnonzero(self.preemption_ranks.least[tenant.claim, nodes] > tenant.rank)
        if len(freed):
            room[freed] = np.minimum(room[freed], self.preemption_ranks.room_for(tenant, nodes[freed]))
        if self.timeline is not None and self.timeline.reservations:
            room = np.minimum(room, self.beside(tenant, nodes, most))
            both = (
                (self.preemption_ranks.least[tenant.claim, nodes] > tenant.rank)
                & (self.timeline.reserved[nodes] > 0)
                & (room > 0)
            )
            for position in np.flatnonzero(both).tolist():
                room[position] = min(int(room[position]), self._open(tenant, int(nodes[position])))
        return np.where(self.admits_now(tenant, nodes), room, 0)

    def free_room(self, shape: Shape, nodes: Ints, most: int) -> Ints:
        """Replicas of a shape for which each of the nodes has room now, whatever its rank."""
        room = self.capacity.room(shape, nodes, most)
        for each in self._rooms:
            if (found := each(shape, nodes, most)) is not None:
                room = np.minimum(room, found)
        return room

    def _open(self, tenant: PlacementProfile, node: int) -> int:
        """Replicas for which reservations and preemption leave GPUs open; at most 1 for shares."""
        shape, shut = tenant.shape, self._unavailable_gpus(tenant, node)
        if shape.gpus:
            return sum(gpu not in shut for gpu in self.capacity.whole_gpus(node)) // shape.gpus
        if shape.gpu_milli:
            free = enumerate(self.capacity.gpu_free[node].tolist())
            return int(any(milli >= shape.gpu_milli and gpu not in shut for gpu, milli in free))
        return PLENTY

    def rank_admits(self, tenant: PlacementProfile, nodes: Ints) -> Bools:
        """True for nodes that exist and where tenants of this rank and claim may take all that is free."""
        taken: Bools = self.capacity.usable[nodes] & (
            self.preemption_ranks.least[tenant.claim, nodes] <= tenant.rank
        )
        return taken

    def admits(self, tenant: PlacementProfile, nodes: Ints) -> Bools:
        """True for nodes that a tenant may use, whatever room there is now, beside later reservations."""
        admitted = self.admits_now(tenant, nodes)
        if self.timeline is not None and self.timeline.reservations:
            admitted &= self.beside(tenant, nodes, 1) > 0
        return admitted

    def beside(self, tenant: PlacementProfile, nodes: Ints, most: int) -> Ints:
        """
        Replicas, at most `most`, that reservations leave room for on each of the nodes as long as these run.

        On nodes without reservations, free capacity only grows. Shares and MIG instances beside reservations
        are checked one at a time.
        """
        room: Ints = np.full(len(nodes), most, dtype=np.int64)
        timeline, shape = self.timeline, tenant.shape
        if timeline is None:
            return room
        ends = timeline.ends(tenant)[nodes]
        # A GPU switched to MIG mode stays in it, however short the job.
        marked = np.flatnonzero((timeline.reserved[nodes] > 0) & ((ends > 1) | bool(shape.mig)))
        for end in np.unique(ends[marked]).tolist() if not shape.gpu_milli and not shape.mig else ():
            where = marked[ends[marked] == end]
            room[where] = np.minimum(room[where], timeline.room_in(shape, nodes[where], 1, end))
            for position in where[timeline.shared[nodes[where]].any(axis=1)].tolist() if shape.gpus else ():
                node = int(nodes[position])
                shut = timeline.shut(shape, node, end)
                unshared = sum(gpu not in shut for gpu in self.capacity.whole_gpus(node))
                room[position] = min(room[position], unshared // shape.gpus)
        if shape.gpu_milli or shape.mig:
            easy = timeline.surely_fits_share(shape, nodes[marked])
            room[marked[easy]] = np.minimum(room[marked[easy]], 1)
            for position in marked[~easy].tolist():
                room[position] = min(room[position], self._one_beside(tenant, int(nodes[position])))
        return room

    def choose_site(self, index: int, node: int, first: Collection[int]) -> ReplicaSite:
        """The site that a replica of a class gets in slot 0 on a node with room for it."""
        tenant = self.tenants[index]
        return self.capacity.find(tenant.shape, node, first, self._unavailable_gpus(tenant, node))

    def _unavailable_gpus(self, tenant: PlacementProfile, node: int) -> frozenset[int]:
        """Indices of GPUs that reservations or preemption keep from a tenant in slot 0."""
        shut = frozenset[int]()
        if self.timeline is not None and self.timeline.reserved[node]:
            shut = self.timeline.shut(tenant.shape, node, int(self.timeline.ends(tenant)[node]))
        return shut | self.preemption_ranks.shut(tenant, node)

    def _one_beside(self, tenant: PlacementProfile, node: int) -> int:
        """1 if a share or MIG instances fit beside the reservations on a node."""
        timeline, capacity, shape = self.timeline, self.capacity, tenant.shape
        if timeline is None or not capacity.room(shape, np.array([node], dtype=np.int64), 1)[0]:
            return 0
        end = int(timeline.ends(tenant)[node])
        if shape.mig:
            return int(timeline.fits_until(shape, capacity.find(shape, node), end))
        shut, free = timeline.shut(shape, node, end), capacity.gpu_free[node].tolist()
        return int(any(milli >= shape.gpu_milli and gpu not in shut for gpu, milli in enumerate(free)))

    def admits_now(self, tenant: PlacementProfile, nodes: Ints) -> Bools:
        """True for nodes that a tenant may use now, whatever room there is."""
        admitted = self.rank_admits(tenant, nodes)
        freed = np.flatnonzero(~admitted & self.capacity.usable[nodes])
        if len(freed):
            admitted[freed] = self.has_room_beside_freed(tenant, nodes[freed])
        for each in self._admits:
            if (found := each(tenant, nodes)) is not None:
                admitted &= found
        return admitted

    def has_room_beside_freed(self, tenant: PlacementProfile, nodes: Ints) -> Bools:
        """True where a tenant may take one more place beside what preemption has freed on the nodes."""
        room: Bools = self.preemption_ranks.room_for(tenant, nodes) > 0
        if self.timeline is not None:
            for position in np.flatnonzero(room & (self.timeline.reserved[nodes] > 0)).tolist():
                room[position] = self._open(tenant, int(nodes[position])) > 0
        return room

    def admits_later(self, index: int, nodes: Ints) -> Bools:
        """True for nodes that exist and where anti-affinity lets jobs of a class start in a later slot."""
        allowed: Bools = self.capacity.usable[nodes].copy()
        for each in self._admits_later:
            if (found := each(index, nodes)) is not None:
                allowed &= found
        return allowed

    def unused_opened(self, nodes: Ints) -> Bools | None:
        """Opened nodes that are unused and should stay so if possible; None if there are none."""
        if not self._has_optional:
            return None
        untouched: Bools = self._optional[nodes] & (self.capacity.replicas[nodes] == 0)
        return untouched

    def is_priced(self, tenant: PlacementProfile) -> bool:
        """True if some nodes cost a tenant points that others do not."""
        charges = self.problem.charges
        wasteful = bool(charges.fragmentation and tenant.shape.quota_milli)
        return bool(tenant.node_points or tenant.affinity.workload or tenant.shape.mig) or wasteful

    def is_unpriced_packing(self, tenant: PlacementProfile) -> bool:
        """True if only room, rank and best fit matter."""
        packed = tenant.profile is Profile.PACK and tenant.affinity == NO_AFFINITY
        packed = packed and self.scorer is None
        return packed and not self.is_priced(tenant) and not self._has_joint_limits

    def node_price(self, tenant: PlacementProfile, nodes: Ints) -> Ints:
        """Points, negative for a price, of one more replica on each of the nodes, without MIG layouts."""
        price: Ints = np.zeros(len(nodes), dtype=np.int64)
        if tenant.node_points:
            price += self.node_points[tenant.node_points][nodes]
        for each in self._prices:
            if (found := each(tenant, nodes)) is not None:
                price += found
        return price

    def _scarcity_cost(self) -> Floats | None:
        if not any(group.scarcity for group in self.problem.groups):
            return None
        cost: Floats = np.zeros(len(self.problem.nodes))
        for group in self.problem.groups:
            # Whole numbers, as all costs: smaller differences are rounding errors.
            cost[list(group.nodes)] = round(self.params.greedy.scarcity * group.scarcity * COST_SCALE)
        return cost

    def _by_node(self, node_points: tuple[tuple[int, int], ...]) -> Ints:
        by_group = dict(node_points)
        return np.array([by_group.get(group, 0) for group in self.group_of], dtype=np.int64)
