"""The jobs of a Problem: classes of pending jobs, their options, and running jobs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuplan.models.mig import profile_milli
from gpuplan.models.policy.policy import Profile
from gpuplan.models.queue import QuotaAmounts
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuplan.models.cluster import Level, MigInstance

PlacementKey: TypeAlias = tuple[float, int, float, float, float, float, int, tuple[int, ...]]
"""Sort key of a class in the order of placement, see `JobClass.placement_key`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Resources that one replica takes from a node."""

    gpus: int
    """Whole GPUs."""
    gpu_milli: int
    """Share of one GPU; 0 with whole GPUs or none."""
    amounts: tuple[int, ...]
    """Amount of each of `Problem.resources`."""
    mig: tuple[tuple[str, int], ...] = ()
    """MIG instances: (profile, count), sorted."""
    further_quota: tuple[int, ...] = ()
    """Full request of each of `NOT_OF_GPUS`, which counts against quotas; empty if none has a quota."""
    quota_milli: int = field(init=False, compare=False, repr=False)
    """Thousandths of GPUs that it counts for: in quotas of GPUs, power and sizes."""
    quota: QuotaAmounts = field(init=False, compare=False, repr=False)
    """All that counts against quotas."""

    def __post_init__(self) -> None:
        """Compute once what every step reads."""
        milli = self.gpus * MILLI + self.gpu_milli + self.mig_milli
        object.__setattr__(self, "quota_milli", milli)
        object.__setattr__(self, "quota", QuotaAmounts(milli, *self.further_quota))

    def quota_on(self, gpu_model: str | None, resource: str) -> int:
        """What it counts for against the quotas of a resource if its GPUs are of a model."""
        return self.quota.on(gpu_model, resource)

    @property
    def mig_milli(self) -> int:
        """Thousandths of GPUs that its MIG instances count for."""
        return sum(profile_milli(profile) * count for profile, count in self.mig)


@dataclass(frozen=True, slots=True)
class Option:
    """A GPU model on which all replicas of a job may run (None: nodes without use of GPUs)."""

    gpu_model: str | None
    groups: tuple[int, ...]
    """Indices into `Problem.groups`."""
    points: int
    """
    Objective points of a placed job, with its minimum number of replicas if `further` is given; of each
    placed replica if the class is elastic and `further` is not given.
    """
    further: tuple[int, ...] = ()
    """Points of each replica beyond the minimum, where they differ; none has more than one before it."""
    once: int = 0
    """Further points of each placed job, independent of its number of replicas: lateness avoided."""
    ends: tuple[int, ...] = (1,)
    """By slot of the start: the slot before which the job ends; H if it lasts to the end of the horizon."""
    later: tuple[int | None, ...] = (None,)
    """
    By slot of the start: points of a job with its minimum number of replicas, including `once`; None if it
    may not start then. The value for slot 0 is never read.
    """
    later_groups: tuple[tuple[int, ...], ...] = ((),)
    """By slot of the start: indices into `Problem.groups` of eligible groups; `groups` is that of slot 0."""


def one_of(options: Sequence[Option]) -> Option:
    """Equally good options as one, with the groups of all of them."""
    groups = tuple(group for option in options for group in option.groups)
    return options[0] if len(options) == 1 else replace(options[0], groups=groups)


class ClassRole(StrEnum):
    """Meaning of placing a job of a class."""

    START = "start"
    """A pending job starts."""
    MOVE = "move"
    """A running job migrates: it leaves its places and runs at new ones."""
    GROW = "grow"
    """A running elastic job gets these replicas in addition."""
    RESUME = "resume"
    """A running job that is preempted now starts again in a later slot."""

    @property
    def replaces_incumbent(self) -> bool:
        """True if it restores value that a running job loses by leaving; it is part of the cost of that."""
        return self in (ClassRole.MOVE, ClassRole.RESUME)


@dataclass(frozen=True, slots=True)
class LocalityRule:
    """Locality rules of a job: required, preferred and spread level."""

    required: Level | None = None
    preferred: Level | None = None
    spread: Level | None = None
    most: int = 0
    """Maximum number of replicas in one domain of level `spread`."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A condition for the start of a job: a slot, or another pending job of the problem."""

    slot: int = 0
    """Slot by which it holds, if it does not depend on the plan."""
    job_class: int | None = None
    """A class of one job, which must have been placed: the condition holds from the slot after its start …"""
    ended: bool = True
    """… or, if this is True, from the slot before which it ends."""


@dataclass(frozen=True, slots=True)
class PromisedStart:
    """The promise of an earlier plan to the job of a class, as far as it still applies."""

    start: int
    """Promised slot; 0 if it is due."""
    latest: int
    """Latest slot of the start: `start`, or later if the policy allows a delay."""
    holds: tuple[HeldResources, ...]
    """Its places; empty if some are lost. Of whole GPUs only the number counts."""
    option: int = 0
    """Position of the option that the places belong to."""


@dataclass(frozen=True, slots=True)
class FirmReservation:
    """A fixed start: at the latest in this slot, on places that are reserved for it."""

    job_class: int
    option: int
    """Position among the options of the class."""
    slot: int
    """0 if it must start now."""
    holds: tuple[HeldResources, ...]
    """One per replica. From slot 1 on, only the number of whole GPUs per node counts."""


@dataclass(frozen=True)
class JobClass:
    """Jobs of equal value that may use the same nodes and take the same resources there."""

    jobs: tuple[str, ...]
    """Names, in the order in which they are placed."""
    shape: Shape
    minimum: int
    """Minimum number of replicas."""
    maximum: int
    queue: int
    """Index into `Problem.queues`."""
    options: tuple[Option, ...]
    """Sorted by points, highest first."""
    role: ClassRole = ClassRole.START
    incumbent: int | None = None
    """Index into `Problem.incumbents` of its one job, with MOVE, GROW and RESUME."""
    priority: int = 0
    """Classes of higher priority come first; 0 for all classes where priority is only a weight."""
    fixed_points: int = 0
    """Points of each placed job in addition to those of its option: never positive."""
    rank: int = 0
    """It may use what preempted jobs of this rank or a lower one free."""
    claim: int = 0
    """It may also use what running jobs with this number in their `claims` free; 0 means no claim."""
    together: LocalityRule = LocalityRule()
    node_points: tuple[tuple[int, int], ...] = ()
    """(group, points of a replica there, never positive), sorted; other groups have 0."""
    profile: Profile = Profile.PACK
    workload: str = ""
    """Workload class, if interference with it has a price."""
    carries: tuple[int, ...] = ()
    """Tags of its jobs; a tag is the number of a label set that some job avoids."""
    avoids: tuple[tuple[int, Level], ...] = ()
    """(tag, level): no domain of the level may contain a job of this class and another with the tag."""
    asked: tuple[int, ...] = ()
    """Requested amount of each resource, where a replica counts for less; empty if it counts in full."""
    seconds: int = 0
    """Expected duration on its best option; used only to order classes."""
    earliest: int = 0
    """First slot in which it may start; H if none."""
    predecessors: tuple[Predecessor, ...] = ()
    """Conditions of which at least `needed` must hold before it may start; the class has one job."""
    needed: int = 0
    co_start: int | None = None
    """Number of the group of classes, of one job each, that start in the same slot or not at all."""
    due: int | None = None
    """Seconds from now to its deadline, if that is critical; used only to order classes."""
    promise: PromisedStart | None = None
    """Promised start, if any; the class then has one job."""
    starving: int | None = None
    """Position among starving jobs, if any; the smallest waits longest. The class then has one job."""

    @property
    def elastic(self) -> bool:
        """True if the number of replicas is a choice."""
        return self.minimum < self.maximum

    @property
    def startable(self) -> bool:
        """True if its jobs may start in slot 0."""
        return self.earliest == 0 and self.needed == 0

    @property
    def starts_alone(self) -> bool:
        """True if its jobs are pending and may start independently of other jobs."""
        return self.role is ClassRole.START and self.co_start is None

    @property
    def needs_one_domain(self) -> bool:
        """True if its jobs have several replicas that must all be in one domain."""
        return self.minimum > 1 and self.together.required is not None

    @property
    def firm(self) -> bool:
        """True if its one job holds a promise, or is starving and so gets one before other jobs."""
        return self.promise is not None or self.starving is not None

    @cached_property
    def scaled(self) -> bool:
        """True if its further replicas may have unequal points."""
        return any(option.further for option in self.options)

    def most(self, option: Option) -> int:
        """Number of replicas with which one job has the most points on an option."""
        if option.further:
            return self.minimum + sum(points > 0 for points in option.further)
        return self.minimum if self.elastic and option.points < 0 else self.maximum

    @cached_property
    def choices(self) -> tuple[tuple[Option, tuple[Option, ...]], ...]:
        """The options, best first: those with equal points as one, and these themselves."""
        equals = (
            tuple(each) for _, each in groupby(self.options, lambda option: option.points + option.once)
        )
        return tuple((one_of(each), each) for each in equals)

    @cached_property
    def per_replica(self) -> bool:
        """True if the points of an option are those of one replica, and all replicas have equal points."""
        return (self.elastic or self.role is ClassRole.GROW) and not self.scaled

    def points(self, option: Option, replicas: int) -> int:
        """Objective points of one job placed with this number of replicas, without costs of its nodes."""
        placed = option.points * replicas if self.per_replica else option.points
        more = sum(option.further[: max(0, replicas - self.minimum)])
        return self.fixed_points + option.once + placed + more

    def initial_replicas(self, option: Option) -> int:
        """Number of replicas of a start with enough room: each has at least the mean of the minimum."""
        if not option.further:
            return self.most(option)
        return self.minimum + sum(
            points > 0 and points * self.minimum >= option.points for points in option.further
        )

    @property
    def ordering_size(self) -> int:
        """Number of replicas that sets its order: the minimum where further ones may have fewer points."""
        return self.minimum if self.scaled else self.maximum

    @cached_property
    def most_points(self) -> int:
        """Maximum points of one job, started in slot 0."""
        sizes = (self.minimum, self.maximum)
        found = (self.points(option, size) for option in self.options for size in (*sizes, self.most(option)))
        return max(found, default=0)

    @cached_property
    def best_points(self) -> int:
        """Maximum points of one job, started in any slot."""
        return max((self.most_points, *self._later_points))

    @cached_property
    def best_later_points(self) -> int:
        """Maximum points of one job, started in a later slot; at least 0."""
        return max((0, *self._later_points))

    @property
    def _later_points(self) -> Iterator[int]:
        return (points for option in self.options for points in option.later[1:] if points is not None)

    def placement_key(self, size: float, *, horizon: int | None, bonus: int = 0) -> PlacementKey:
        """
        Sort key in the order of placement (`Problem.placement_order`).

        `size` is the number of thousandths of GPUs that one job stands for, `horizon` the number of seconds
        from now to the end of the last slot, None with one slot. `bonus` is in points for each job.
        """
        ahead = horizon is not None
        seconds = 1 if horizon is None else max(1, min(self.seconds, horizon))
        density = (self._points_in_order(ahead=ahead) + bonus) / max(1e-9, size * seconds)
        return (
            # The guarantee of a queue comes before all priorities; its jobs of higher priority meet it first.
            -inf if bonus else -self.priority,
            -self.priority,
            inf if self.due is None or not ahead else self.due,
            -float(f"{density:.1e}"),
            -self._lost_on_second_best() if self.scaled and not ahead else 0,
            -size,
            -self.shape.quota_milli,
            tuple([-amount for amount in self.shape.amounts]),
        )

    def _points_in_order(self, *, ahead: bool) -> int:
        """Points of a job at its best; with its fewest replicas if further ones bring less."""
        if not self.scaled:
            return self.best_points if ahead else self.most_points
        now = [self.points(option, self.minimum) for option in self.options]
        later = [points or 0 for option in self.options for points in option.later[1:]]
        return max((*now, *(later if ahead else ())), default=0)

    def _lost_on_second_best(self) -> float:
        """
        Part of its points that a scaled job loses on the second best of its options.

        Of equal jobs the one that loses most comes first, as in Vogel's method for transportation problems
        (Reinfeld and Vogel, Mathematical Programming, 1958).
        """
        points = (self.points(option, self.initial_replicas(option)) for option in self.options)
        best, second, *_ = *sorted(points, reverse=True), 0, 0
        return (best - max(0, second)) / max(1, best)


class HeldResources(NamedTuple):
    """Holdings of one replica of a running job."""

    node: int | None
    """Index into `Problem.nodes`; None if no job may start on the node, so that leaving it frees nothing."""
    gpus: tuple[int, ...] = ()
    """Indices of whole GPUs, or of the GPU of a share."""
    slices: tuple[tuple[int, MigInstance], ...] = ()
    """(GPU index, MIG instance)."""


class Incumbent(NamedTuple):
    """A running job that may be preempted, shrunk, grown or migrated."""

    job: str
    shape: Shape
    """Shape of each replica."""
    holds: tuple[HeldResources, ...]
    queue: int
    gpu_model: str | None
    rank: int
    """
    Nodes, quota and power that it frees by being preempted or shrunk go to classes of at least this rank, and
    to classes with a claim on what it holds. 0 if it may be neither.
    """
    stop_points: int | None
    """Points of preempting it, negative; None if it may not be preempted."""
    leave_points: int
    """Points of leaving its places to migrate, without those of the class MOVE; not positive."""
    shrink_points: tuple[int, ...]
    """Points of each replica given up, in order: negative, none loses less than one before it."""
    resize_points: int
    """Points of shrinking at all, not positive."""
    min_replicas: int
    """Minimum number of replicas unless it leaves; its current number if it may not shrink."""
    move: int | None = None
    """Its class with role MOVE; None if it may not migrate."""
    grow: int | None = None
    """Its class with role GROW."""
    resume: int | None = None
    """Its class with role RESUME; None if it cannot start again within the horizon after preemption."""
    leave_reward: int = 0
    """Points gained if it leaves every node that is to be drained (by preemption or migration)."""
    until: int = 1
    """Slot before which it ends if it stays; H if it lasts to the end of the horizon."""
    claims: tuple[int, ...] = ()
    """Claims of classes that may reclaim what its queue borrows, sorted."""

    @property
    def quota_milli(self) -> int:
        """Thousandths of GPUs held by all its replicas."""
        return self.shape.quota_milli * len(self.holds)

    def quota_of(self, resource: str) -> int:
        """What one replica counts for against the quotas of a resource."""
        return self.shape.quota_on(self.gpu_model, resource)

    @property
    def shrinkable(self) -> bool:
        """True if it may run with fewer replicas."""
        return self.min_replicas < len(self.holds)

    @property
    def scaled(self) -> bool:
        """True if the replicas that it may give up have unequal points."""
        return len(set(self.shrink_points)) > 1
