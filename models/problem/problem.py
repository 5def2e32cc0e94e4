"""
Problem: the immutable planning problem of one epoch, in integers.

Identical jobs form a `JobClass`, interchangeable nodes a `NodeGroup`. The greedy heuristic and the
formulation read only this. It consists of plain tuples; numerical code builds its own arrays.

Points are relative to doing nothing: a running job that is unchanged has 0 points.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.cluster import Level, MigInstance, Node
    from gpuplan.models.problem.jobs import FirmReservation, HeldResources, Incumbent, JobClass, PlacementKey


@dataclass(frozen=True, slots=True)
class DisruptionLimit:
    """What a disruption budget leaves to a plan, over the incumbents that it could bind."""

    name: str
    left: int
    """The most that the plan may disrupt, at least 0."""
    members: tuple[int, ...]
    """Indices into `Problem.incumbents`, sorted."""
    whole_jobs: bool = False
    """True: a disrupted job counts once; False: each of its replicas that leaves its place counts."""

    def taken(self, given_up: int) -> int:
        """What an incumbent counts for that gives up so many replicas, by any way of leaving them."""
        return min(1, given_up) if self.whole_jobs else given_up


# The nodes of a Problem: groups, free and returning resources, and nodes that pools may add.


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are eligible for the same jobs at the same price: equal GPUs and equal filter results."""

    gpu_model: str | None
    gpus: int
    """GPUs per node."""
    nodes: tuple[int, ...]
    """Indices into `Problem.nodes`."""
    pool: int | None = None
    """Index into `Problem.pools`, for a group of nodes that do not exist yet; all of them are equal."""
    scarcity: float = 0.0
    """
    Demand for these GPUs by jobs that cannot run on all GPUs of the cluster, relative to the group where it
    is highest; 0 to 1.
    """


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A healthy GPU in MIG mode."""

    index: int
    idle: tuple[MigInstance, ...]
    """Instances that exist and are unused."""
    used: tuple[MigInstance, ...]
    """Instances in use by any running job."""


@dataclass(frozen=True, slots=True)
class ReplicaRelease:
    """Resources that one replica of a running job returns to its node at the expected end of the job."""

    slot: int
    """First slot in which they are free; at least 1, less than H."""
    gpus: tuple[tuple[int, int], ...]
    """(GPU index, thousandths); healthy GPUs only."""
    slices: tuple[tuple[int, MigInstance], ...]
    """(GPU index, MIG instance)."""
    amounts: tuple[int, ...]
    """Amount of each of `Problem.resources`."""
    incumbent: int | None = None
    """Index into `Problem.incumbents`: if that job is evicted, all this is free at once."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """Free resources of one node while all running jobs stay."""

    name: str
    gpus: tuple[int, ...]
    """Thousandths free by GPU index; 0 in MIG mode; never negative."""
    amounts: tuple[int, ...]
    """Free amount of each of `Problem.resources`; never negative."""
    capacity: tuple[int, ...] = ()
    """
    Amount of each resource of the whole node, if nothing ran on it; empty if it is the free one and what
    incumbents hold.
    """
    overdrawn: tuple[int, ...] = ()
    """Usage of each resource beyond capacity, which released amounts cover first; empty if there is none."""
    mig: tuple[MigGpu, ...] = ()
    closing_points: int | None = None
    """
    Points for removing the node after all incumbents have left it; None if it may not be removed, for example
    where a job runs that cannot leave.
    """
    unhealthy: tuple[int, ...] = ()
    """Indices of GPUs that no job may use; holds of running jobs leave them out."""
    gpu_groups: tuple[tuple[int, int], ...] = ()
    """(NVLink group, NUMA node) by GPU index, -1 if unknown; empty if nothing is known."""
    releases: tuple[ReplicaRelease, ...] = ()
    """Resources that running jobs return when they end within the horizon, by slot."""
    opens: int = 0
    """First slot in which it accepts jobs; above 0 while it is being provisioned."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """Nodes that may be added to a pool; they are last in `Problem.nodes`, one group per pool."""

    name: str
    nodes: tuple[Node, ...]
    """The nodes to be added, in the order in which they are opened."""
    opening_points: int
    """Price of one node, not negative."""
    closable: tuple[int, ...]
    """Nodes of the pool, indices into `Problem.nodes`, that may be removed when empty."""
    most_closed: int
    """Number of nodes that may be removed until the pool is at its minimum (without opened ones)."""


# The problem itself, with its queues, caps and charges.


@dataclass(frozen=True, slots=True)
class QueueBudget:
    """Limits of one resource over the queue tree (see `models.queue.QueueLimits`), in its unit."""

    resource: str
    """A GPU model, or one of `models.queue.RESOURCES`."""
    leaves_first: tuple[int, ...]
    parent: tuple[int | None, ...]
    kept: tuple[int, ...]
    limit: tuple[int | None, ...]
    """Limits, raised to the current usage of running jobs, so that the problem is always feasible."""
    firm: tuple[int | None, ...]
    """True limits, which starts and growth must respect regardless of current usage."""
    own: tuple[int, ...]
    """Usage of running jobs directly in each queue, including those that may leave."""
    releases: tuple[tuple[int, int, int, int | None], ...] = ()
    """(slot, queue, amount, incumbent) that running jobs return when they end, by slot."""

    def path_to_root(self, queue: int) -> list[int]:
        """A queue and all queues above it."""
        way: list[int] = []
        above: int | None = queue
        while above is not None:
            way.append(above)
            above = self.parent[above]
        return way

    def usage_up_the_tree(self, own: list[int]) -> list[int]:
        """Usage at each queue, given the usage directly in each: its own, and what its children borrow."""
        usage = list(own)
        for queue in self.leaves_first:
            if (parent := self.parent[queue]) is not None:
                usage[parent] += max(0, usage[queue] - self.kept[queue])
        return usage


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Entitlement of a queue and all queues below it to one resource: its guarantee or its nominal quota."""

    resource: str
    queues: tuple[int, ...]
    """The queue and all queues below it."""
    owed: int
    """min(guarantee or nominal quota, demand that fits it), in thousandths of GPUs."""
    own: int
    """Usage of running jobs of these queues, including those that may leave."""
    price: int
    """Points for each missing GPU, rounded up to whole GPUs; at least 0."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A cap on the power of the GPUs of several nodes."""

    nodes: tuple[int, ...]
    watts: tuple[int, ...]
    """Watts of one GPU, for each of the nodes."""
    left: int
    """Thousandths of watts left by running jobs; negative if they exceed the cap."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """(incumbent, thousandths of watts it draws on nodes of the rack where no job may start), sorted."""
    releases: tuple[tuple[int, int, int | None], ...] = ()
    """(slot, thousandths of watts, incumbent) that running jobs return when they end, by slot."""


@dataclass(frozen=True, slots=True)
class AffinityNeighbour:
    """A running job with anti-affinity or interference towards other jobs."""

    job: str
    incumbent: int | None
    """Index into `Problem.incumbents` if it may leave."""
    nodes: tuple[int, ...]
    workload: str
    carries: tuple[int, ...]
    avoids: tuple[tuple[int, Level], ...]


@dataclass(frozen=True, slots=True)
class Charges:
    """Prices in points, none negative."""

    domain: int = 0
    """Price of each domain of the preferred level beyond the first."""
    fragmentation: int = 0
    """Price of each wholly free GPU beyond whole multiples of `reference_gpus` on its node."""
    reference_gpus: int = 8
    repartition: int = 0
    """Price of each MIG instance created."""
    switch_mode: int | None = None
    """Price of each GPU switched to MIG mode; None if that is not allowed."""
    may_repartition: bool = True
    interference: tuple[tuple[str, str, int], ...] = ()
    """(workload, workload, points) of two jobs of these classes that newly share a node."""


@dataclass(frozen=True)
class Problem:
    """The immutable planning problem of one epoch."""

    resources: tuple[str, ...]
    """Countable resources of a node besides GPUs: thousandths of cores, memory, disk, then others by name."""
    nodes: tuple[FreeNode, ...]
    groups: tuple[NodeGroup, ...]
    classes: tuple[JobClass, ...]
    queues: tuple[str, ...]
    budgets: tuple[QueueBudget, ...]
    incumbents: tuple[Incumbent, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()
    pools: tuple[PoolOption, ...] = ()
    domains: tuple[tuple[Level, tuple[int, ...]], ...] = ()
    """Levels in use, with the domain of each node; a node without one is a domain of its own."""
    power_caps: tuple[PowerCap, ...] = ()
    standing: tuple[AffinityNeighbour, ...] = ()
    charges: Charges = Charges()
    edges: tuple[int, ...] = (0, 3600)
    """Seconds from now at which each slot begins, and the end of the last (see `time_slots.TimeSlots`)."""
    firm_reservations: tuple[FirmReservation, ...] = ()
    """Fixed starts, at most one per class; `promise_reservations` finds them."""
    depth: int | None = None
    """Maximum number of pending jobs with a promised start, including `firm_reservations`; None means all."""
    disruption_limits: tuple[DisruptionLimit, ...] = ()
    """What disruption budgets leave, of those that could bind."""
    floors: tuple[tuple[int, int], ...] = ()
    """(priority, minimum points of its classes), which classes of lower priority must not reduce."""

    @property
    def slots(self) -> int:
        """H, the number of slots; with 1 the problem is about this instant only."""
        return len(self.edges) - 1

    @cached_property
    def priorities(self) -> tuple[int, ...]:
        """The priorities of classes that start or grow, highest first."""
        return tuple(
            sorted({one.priority for one in self.classes if not one.role.replaces_incumbent}, reverse=True)
        )

    @cached_property
    def placement_order(self) -> tuple[int, ...]:
        """
        Classes in the order of placement: most points per GPU, to two digits; then the larger job.

        If priorities are tiers, higher ones come before lower ones. A job without GPUs counts as the GPUs
        that stand for its dominant share of the cluster (Ghodsi et al., Dominant Resource Fairness, NSDI
        2011). Among equal densities the larger job comes first, as in first fit decreasing: small replicas
        fill what large ones leave.

        With several slots, points are per GPU and second (Smith's rule: weight by duration, Naval Research
        Logistics Quarterly 3, 1956), and jobs with critical deadlines come first, the earliest one first.
        """
        return tuple(sorted(range(len(self.classes)), key=self.placement_keys.__getitem__))

    @cached_property
    def placement_keys(self) -> tuple[PlacementKey, ...]:
        """Sort key of each class in the order of placement; cached, as every step of greedy reads it."""
        return tuple(map(self.placement_key, range(len(self.classes))))

    def placement_key(self, index: int, bonus: int = 0) -> PlacementKey:
        """Sort key of a class, with a bonus in points for each of its jobs."""
        horizon = self.edges[-1] if self.slots > 1 else None
        return self.classes[index].placement_key(self._sizes[index], horizon=horizon, bonus=bonus)

    @cached_property
    def _sizes(self) -> list[float]:
        """Thousandths of GPUs that one job of each class stands for."""
        totals = [sum(each) for each in zip(*(node.amounts for node in self.nodes), strict=True)]
        gpus = sum(sum(node.gpus) for node in self.nodes)
        sizes = []
        for job_class in self.classes:
            shape = job_class.shape
            size: float = shape.quota_milli
            if not size:
                shares = (
                    amount / total for amount, total in zip(shape.amounts, totals, strict=True) if total
                )
                size = gpus * max(shares, default=0)
            sizes.append(job_class.ordering_size * size)
        return sizes

    def precedence(self, index: int) -> tuple[int, int]:
        """Sort key of jobs with equal demand: the priority of their class, then its points."""
        return -self.classes[index].priority, -self.classes[index].most_points

    @property
    def claims(self) -> int:
        """Number of claims: one more than the largest claim of a class."""
        return 1 + max((job_class.claim for job_class in self.classes), default=0)

    @property
    def may_disturb(self) -> bool:
        """True if a running job may be preempted, shrunk or migrated."""
        return any(
            each.stop_points is not None or each.shrinkable or each.move is not None
            for each in self.incumbents
        )

    def joint_limits(self, node: int) -> tuple[bool, ...]:
        """For each limit on what several nodes use together, whether it counts a node."""
        return tuple(node in cap.nodes for cap in self.power_caps)

    @property
    def jointly_limited(self) -> frozenset[int]:
        """Nodes under such a limit: room on one of them depends on what is used on the others."""
        return frozenset(node for cap in self.power_caps for node in cap.nodes)

    def domain_of(self, level: Level) -> tuple[int, ...]:
        """Domain of each node at a level in use."""
        return dict(self.domains)[level]

    @property
    def ceiling(self) -> int:
        """
        Upper bound without a solver: every job has maximum points, every removable node is removed.

        Nothing is missing or wasted.
        """
        starts = sum(
            len(job_class.jobs) * max(0, job_class.best_points)
            for job_class in self.classes
            if not job_class.role.replaces_incumbent
        )
        leaves = sum(self._best_leave(incumbent) for incumbent in self.incumbents)
        closed = sum(max(0, node.closing_points or 0) for node in self.nodes)
        return starts + leaves + closed + self._missing + self._wasted

    @property
    def _missing(self) -> int:
        """Price of all missing guarantees if nothing changes."""
        return sum(each.price * -(-max(0, each.owed - each.own) // MILLI) for each in self.guarantees)

    @property
    def _wasted(self) -> int:
        """Price of all fragmentation if nothing changes."""
        optional = {node for group in self.groups if group.pool is not None for node in group.nodes}
        free = (
            node.gpus.count(MILLI)
            for index, node in enumerate(self.nodes)
            if index not in optional and not node.opens
        )
        return self.charges.fragmentation * sum(gpus % self.charges.reference_gpus for gpus in free)

    def _best_leave(self, incumbent: Incumbent) -> int:
        gains = [0]
        if incumbent.stop_points is not None:
            again = 0 if incumbent.resume is None else self.classes[incumbent.resume].best_later_points
            gains.append(incumbent.stop_points + again)
        if incumbent.move is not None:
            gains.append(incumbent.leave_points + self.classes[incumbent.move].most_points)
        return max(gains) + incumbent.leave_reward


Held: TypeAlias = tuple[int | None, tuple[int, ...], tuple[tuple[int, str, int], ...]]
"""(node, GPU indices, (GPU index, profile, start) of MIG instances); node None: no job may start there."""


def held_indices(problem: Problem, replica: Replica, node_of: Mapping[str, int]) -> Held:
    """Holdings of a replica in indices, without unhealthy GPUs; `node_of` maps node names to indices."""
    node = node_of.get(replica.node)
    if node is None:
        return None, (), ()
    sound = [held for held in replica.gpus if held.index not in problem.nodes[node].unhealthy]
    shares = [held.index for held in sound if isinstance(held, GpuShare)]
    slices = [(held.index, held.profile, held.start) for held in sound if not isinstance(held, GpuShare)]
    return node, tuple(sorted(shares)), tuple(sorted(slices))


def replica_changes(
    problem: Problem, incumbent: Incumbent, after: Placement, node_of: Mapping[str, int]
) -> tuple[list[int], list[Replica]]:
    """Positions of the holds that are given up, and new replicas."""
    held = [held_indices(problem, replica, node_of) for replica in after.replicas]
    there = Counter(held)
    gone = []
    for position, hold in enumerate(incumbent.holds):
        key = _of(hold)
        if there[key]:
            there[key] -= 1
        else:
            gone.append(position)
    come = []
    for replica, key in zip(after.replicas, held, strict=True):
        if there[key] > 0:
            there[key] -= 1
            come.append(replica)
    return gone, come


def _of(hold: HeldResources) -> Held:
    if hold.node is None:
        return None, (), ()
    slices = tuple(sorted((gpu, each.profile, each.start) for gpu, each in hold.slices))
    return hold.node, tuple(sorted(hold.gpus)), slices
