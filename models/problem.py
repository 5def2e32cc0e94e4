"""
Problem: the frozen question of one epoch, in integers.

Identical jobs form a `JobClass`, interchangeable nodes a `NodeGroup`; both the greedy heuristic and the
formulation read this and nothing else. Plain tuples here; whoever computes turns them into arrays.

Points are differences to doing nothing: a running job that stays as it is counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from planner.models.mig import profile_milli
from planner.models.policy import Profile
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI

if TYPE_CHECKING:
    from planner.models.cluster import Level, MigInstance, Node


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that the same jobs may use at the same price: same GPUs, same answer to every filter."""

    gpu_model: str | None
    gpus: int
    """GPUs per node."""
    nodes: tuple[int, ...]
    """Indices into `Problem.nodes`."""
    pool: int | None = None
    """Index into `Problem.pools` of a group of nodes that do not exist yet; all of them are equal."""


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A healthy GPU in MIG mode."""

    index: int
    idle: tuple[MigInstance, ...]
    """Instances that exist and that nobody uses."""
    used: tuple[MigInstance, ...]
    """Instances in use, those of incumbents included."""


@dataclass(frozen=True, slots=True)
class Return:
    """What one replica of a running job gives back to its node when the job is expected to end."""

    slot: int
    """From this slot on it is free; at least 1, less than H."""
    gpus: tuple[tuple[int, int], ...]
    """(GPU index, thousandths); healthy GPUs only."""
    slices: tuple[tuple[int, MigInstance], ...]
    """(GPU index, MIG instance)."""
    amounts: tuple[int, ...]
    """Of each of `Problem.resources`."""
    incumbent: int | None = None
    """Index into `Problem.incumbents`: if it leaves, it gives all this back at once."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What one node has free while every running job stays."""

    name: str
    gpus: tuple[int, ...]
    """Thousandths free by GPU index; 0 in MIG mode; never negative."""
    amounts: tuple[int, ...]
    """Free amount of each of `Problem.resources`; never negative."""
    overdrawn: tuple[int, ...] = ()
    """How much of each resource is held beyond what there is, to be paid back first; empty if nothing is."""
    mig: tuple[MigGpu, ...] = ()
    closing_points: int | None = None
    """
    What removing the node brings once all incumbents have left it; None if it may not be removed, as where a
    job runs that is no incumbent.
    """
    unhealthy: tuple[int, ...] = ()
    """Indices of GPUs that nobody gets; holds of incumbents leave them out."""
    gpu_groups: tuple[tuple[int, int], ...] = ()
    """(NVLink group, NUMA node) by GPU index, -1 where unknown; empty if nothing is known."""
    returns: tuple[Return, ...] = ()
    """What running jobs give back as they end within the horizon, by slot."""
    opens: int = 0
    """The slot from which on it takes jobs; above 0 while it is being provisioned."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """Nodes a pool may still be given; they stand last in `Problem.nodes`, one group a pool."""

    name: str
    nodes: tuple[Node, ...]
    """As they would be, in the order in which they are opened."""
    opening_points: int
    """Price of one, not negative."""
    closable: tuple[int, ...]
    """Nodes of the pool, indices into `Problem.nodes`, that may be removed once empty."""
    most_closed: int
    """Nodes that may be removed before the pool is at its minimum (opened ones not counted)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one replica takes from a node."""

    gpus: int
    """Whole GPUs."""
    gpu_milli: int
    """Share of one GPU; 0 with whole GPUs or none."""
    amounts: tuple[int, ...]
    """Of each of `Problem.resources`."""
    mig: tuple[tuple[str, int], ...] = ()
    """MIG instances: (profile, count), sorted."""

    @property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that count against quotas."""
        return self.gpus * MILLI + self.gpu_milli + self.mig_milli

    @property
    def mig_milli(self) -> int:
        """Thousandths of GPUs that its MIG instances count for."""
        return sum(profile_milli(profile) * count for profile, count in self.mig)


@dataclass(frozen=True, slots=True)
class Option:
    """A GPU model on which all replicas of a job may run (None: any node, without GPUs)."""

    gpu_model: str | None
    groups: tuple[int, ...]
    """Indices into `Problem.groups`."""
    points: int
    """Objective points of a placed job; of each placed replica if the class is elastic."""
    once: int = 0
    """Points of each placed job beside that, whatever the number of its replicas: lateness saved."""
    ends: tuple[int, ...] = (1,)
    """By slot of the start: the slot before which it is gone; H if it is there to the end."""
    later: tuple[int | None, ...] = (None,)
    """
    By slot of the start: points of a job with its fewest replicas, what is paid once included; None where it
    may not start then. That of slot 0 is never read.
    """
    later_groups: tuple[tuple[int, ...], ...] = ((),)
    """By slot of the start: indices into `Problem.groups` where it may be; `groups` is that of slot 0."""


class Role(StrEnum):
    """What placing a job of a class means."""

    START = "start"
    """A waiting job starts."""
    MOVE = "move"
    """A running job, gone from its old places, runs at new ones."""
    GROW = "grow"
    """A running elastic job has these replicas beside those it runs with."""


@dataclass(frozen=True, slots=True)
class Togetherness:
    """How close replicas of one job must be, should be, and must not be."""

    required: Level | None = None
    preferred: Level | None = None
    spread: Level | None = None
    most: int = 0
    """Replicas in one domain of level `spread` at most."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Something that must have come before a job may start: a slot, or a job of this question that waits."""

    slot: int = 0
    """It will have come by then, as it does not depend on the plan."""
    job_class: int | None = None
    """A class of one job, which must have been placed: then it comes with the slot after its own …"""
    ended: bool = True
    """… or, if this is True, with the slot in which it is gone."""


@dataclass(frozen=True, slots=True)
class Promised:
    """What an earlier plan promised the job of a class, as far as it still can be said of this question."""

    start: int
    """Slot as promised; 0 if it is due."""
    latest: int
    """Slot in which it must start at the latest: `start`, or what the policy lets it be delayed to."""
    holds: tuple[Hold, ...]
    """Its places; empty if some are gone. Of whole GPUs only their number counts."""
    option: int = 0
    """Position of the option to which the places belong."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A start that is firm: no later than in this slot, and its places are held for it."""

    job_class: int
    option: int
    """Position among the options of the class."""
    slot: int
    """0 if it must start now."""
    holds: tuple[Hold, ...]
    """One a replica. Of whole GPUs only the number on each node counts, from slot 1 on."""


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs that are worth the same, may use the same nodes and take the same there."""

    jobs: tuple[str, ...]
    """Names, the one to place first in front."""
    shape: Shape
    minimum: int
    """Replicas."""
    maximum: int
    queue: int
    """Index into `Problem.queues`."""
    options: tuple[Option, ...]
    """Best paid first."""
    role: Role = Role.START
    incumbent: int | None = None
    """Index into `Problem.incumbents` of the one job, with MOVE and GROW."""
    fixed_points: int = 0
    """Of each placed job, beside those of its option: never positive."""
    rank: int = 0
    """It may follow preempted jobs of this rank, or a lower one, onto their nodes."""
    together: Togetherness = Togetherness()
    node_points: tuple[tuple[int, int], ...] = ()
    """(group, points of a replica there, never positive), sorted; groups left out are 0."""
    profile: Profile = Profile.PACK
    workload: str = ""
    """Workload class, where interference with it is priced."""
    carries: tuple[int, ...] = ()
    """Tags (numbers of label sets that some job avoids) that its jobs carry."""
    avoids: tuple[tuple[int, Level], ...] = ()
    """(tag, level): no domain of the level may hold a job of this class and another that carries the tag."""
    asked: tuple[int, ...] = ()
    """What a replica asks for of each resource, where it counts for less; empty if it counts in full."""
    seconds: int = 0
    """Expected duration on its best option; only the order in which classes are looked at depends on it."""
    earliest: int = 0
    """The first slot in which it may start; H if in none."""
    predecessors: tuple[Predecessor, ...] = ()
    """Waiting jobs and slots of which `needed` must have come before it may start; the class has one job."""
    needed: int = 0
    co_start: int | None = None
    """Number of the group of classes, of one job each, that start in the same slot or not at all."""
    due: int | None = None
    """Seconds from now to its deadline, if that is critical; the order in which classes are looked at."""
    promise: Promised | None = None
    """The class has one job, which was promised a start."""
    starving: int | None = None
    """The class has one job, which has waited too long; the smallest number waits longest."""

    @property
    def elastic(self) -> bool:
        """True if the number of replicas is a choice."""
        return self.minimum < self.maximum

    @property
    def startable(self) -> bool:
        """True if a job of it may start in slot 0."""
        return self.earliest == 0 and self.needed == 0

    @property
    def firm(self) -> bool:
        """True if its one job holds a promise, or is to be given one before anybody else."""
        return self.promise is not None or self.starving is not None

    def most(self, option: Option) -> int:
        """Replicas that a job does best with: the most, unless each of them costs more than it brings."""
        return self.minimum if self.elastic and option.points < 0 else self.maximum

    @property
    def per_replica(self) -> bool:
        """True if the points of an option are those of one replica."""
        return self.elastic or self.role is Role.GROW

    def points(self, option: Option, replicas: int) -> int:
        """Objective points of one job placed with so many replicas, what its nodes cost left out."""
        placed = option.points * replicas if self.per_replica else option.points
        return self.fixed_points + option.once + placed

    @property
    def most_points(self) -> int:
        """Points of one job at its best, started in slot 0."""
        sizes = (self.minimum, self.maximum)
        return max((self.points(option, size) for option in self.options for size in sizes), default=0)

    @property
    def best_points(self) -> int:
        """Points of one job at its best, started in any slot."""
        later = (points for option in self.options for points in option.later[1:] if points is not None)
        return max((self.most_points, *later))


@dataclass(frozen=True, slots=True)
class Hold:
    """What one replica of an incumbent holds."""

    node: int | None
    """Index into `Problem.nodes`; None on a node that takes nothing new, where leaving frees nothing."""
    gpus: tuple[int, ...] = ()
    """Indices of whole GPUs, or of the GPU of a share."""
    slices: tuple[tuple[int, MigInstance], ...] = ()
    """(GPU index, MIG instance)."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A running job that may be stopped, shrunk, grown or moved."""

    job: str
    shape: Shape
    """Of each replica."""
    holds: tuple[Hold, ...]
    queue: int
    gpu_model: str | None
    rank: int
    """
    Once it is stopped or shrunk, the nodes it leaves take new replicas only of classes of at least this rank.
    0 for a borrower's, which anybody may follow.
    """
    stop_points: int | None
    """Of stopping it, negative; None if it may not be stopped."""
    leave_points: int
    """Of leaving its old places to be moved, beside the points of the class MOVE; not positive."""
    shrink_points: int
    """Of each replica given up, negative."""
    resize_points: int
    """Of shrinking at all, not positive."""
    fewest: int
    """Replicas it must keep unless it leaves; their number where it may not shrink."""
    move: int | None = None
    """Its class with role MOVE; None if it may not be moved."""
    grow: int | None = None
    """Its class with role GROW."""
    on_leaving: int = 0
    """Points gained if it leaves every node that is to be drained (by stopping or moving)."""
    until: int = 1
    """The slot before which it is gone if it stays; H if it is there to the end."""

    @property
    def shrinkable(self) -> bool:
        """True if it may run with fewer replicas."""
        return self.fewest < len(self.holds)


@dataclass(frozen=True, slots=True)
class QueueBudget:
    """Limits of one resource over the queue tree (see `models.queue.QueueLimits`), in thousandths of GPUs."""

    resource: str
    """A GPU model, or `ALL_MODELS`."""
    leaves_first: tuple[int, ...]
    parent: tuple[int | None, ...]
    kept: tuple[int, ...]
    limit: tuple[int | None, ...]
    """Never below what running jobs already use, so that the question always has an answer."""
    firm: tuple[int | None, ...]
    """The limits that starts and growths must keep, whatever is used already."""
    own: tuple[int, ...]
    """Held by running jobs directly in each queue, incumbents included."""
    returns: tuple[tuple[int, int, int, int | None], ...] = ()
    """(slot, queue, thousandths, incumbent) of what running jobs give back as they end, by slot."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)

    def up_the_tree(self, own: list[int]) -> list[int]:
        """What counts at each queue if so much is held directly in each: its own, and what others borrow."""
        usage = list(own)
        for queue in self.leaves_first:
            if (parent := self.parent[queue]) is not None:
                usage[parent] += max(0, usage[queue] - self.kept[queue])
        return usage


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What a queue with all below it is owed of one resource."""

    resource: str
    queues: tuple[int, ...]
    """The queue and all below it."""
    owed: int
    """min(guarantee, demand), in thousandths of GPUs."""
    own: int
    """Held by running jobs of these queues, incumbents included."""

    def counts(self, gpu_model: str | None) -> bool:
        """True if GPUs of this model count here."""
        return gpu_model is not None and self.resource in (ALL_MODELS, gpu_model)


@dataclass(frozen=True, slots=True)
class PowerCap:
    """A cap on the power of the GPUs of several nodes."""

    nodes: tuple[int, ...]
    watts: tuple[int, ...]
    """Of one GPU, for each of the nodes."""
    left: int
    """Thousandths of watts that running jobs leave; negative where they draw too much."""
    elsewhere: tuple[tuple[int, int], ...] = ()
    """(incumbent, thousandths of watts it draws on nodes of the rack that take nothing new), sorted."""
    returns: tuple[tuple[int, int, int | None], ...] = ()
    """(slot, thousandths of watts, incumbent) of what running jobs give back as they end, by slot."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A running job that others may not, or would rather not, meet."""

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

    guarantee: int = 0
    """Of each GPU, rounded up, missing from what is owed."""
    domain: int = 0
    """Of each domain of the preferred level beyond one."""
    fragmentation: int = 0
    """Of each wholly free GPU beyond whole multiples of `reference_gpus` on its node."""
    reference_gpus: int = 8
    repartition: int = 0
    """Of each MIG instance created."""
    switch_mode: int | None = None
    """Of each GPU switched to MIG mode; None if that may not be done."""
    may_repartition: bool = True
    interference: tuple[tuple[str, str, int], ...] = ()
    """(workload, workload, points) of two jobs of these classes that come to share a node."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The frozen question of one epoch."""

    resources: tuple[str, ...]
    """Countable resources of a node beside GPUs: thousandths of cores, memory, disk, then others by name."""
    nodes: tuple[FreeNode, ...]
    groups: tuple[NodeGroup, ...]
    classes: tuple[JobClass, ...]
    queues: tuple[str, ...]
    budgets: tuple[QueueBudget, ...]
    incumbents: tuple[Incumbent, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()
    pools: tuple[PoolOption, ...] = ()
    domains: tuple[tuple[Level, tuple[int, ...]], ...] = ()
    """Levels in use with the domain of each node; a node without one is a domain of its own."""
    power_caps: tuple[PowerCap, ...] = ()
    standing: tuple[Standing, ...] = ()
    charges: Charges = Charges()
    edges: tuple[int, ...] = (0, 3600)
    """Seconds from now at which each slot begins, and the end of the last (see `models.slots.Slots`)."""
    bookings: tuple[Booking, ...] = ()
    """Starts that are firm, at most one a class; `solvers.holding` finds them."""
    depth: int | None = None
    """Waiting jobs that may be promised a start, those of `bookings` included; None is all."""

    @property
    def slots(self) -> int:
        """H, the number of slots; 1 is a question about this instant alone."""
        return len(self.edges) - 1

    def domain_of(self, level: Level) -> tuple[int, ...]:
        """Domain of each node at a level in use."""
        return dict(self.domains)[level]

    @property
    def ceiling(self) -> int:
        """
        No plan scores more: every job at its best, every removable node removed, nothing missing or wasted.

        It needs no solver.
        """
        starts = sum(
            len(job_class.jobs) * max(0, job_class.best_points)
            for job_class in self.classes
            if job_class.role is not Role.MOVE
        )
        leaves = sum(self._best_leave(incumbent) for incumbent in self.incumbents)
        closed = sum(max(0, node.closing_points or 0) for node in self.nodes)
        return starts + leaves + closed + self._missing + self._wasted

    @property
    def _missing(self) -> int:
        """Price of all that guarantees lack while nothing changes."""
        short = sum(-(-max(0, each.owed - each.own) // MILLI) for each in self.guarantees)
        return self.charges.guarantee * short

    @property
    def _wasted(self) -> int:
        """Price of all fragmentation while nothing changes."""
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
            gains.append(incumbent.stop_points)
        if incumbent.move is not None:
            gains.append(incumbent.leave_points + self.classes[incumbent.move].most_points)
        return max(gains) + incumbent.on_leaving
