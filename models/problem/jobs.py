"""The jobs of a Problem: classes of those that wait, their options, and incumbents."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.mig import profile_milli
from gpuplan.models.policy.policy import Profile
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Level, MigInstance


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
    quota_milli: int = field(init=False, compare=False, repr=False)
    """Thousandths of GPUs that count against quotas."""

    def __post_init__(self) -> None:
        """Count once what is asked for at every step."""
        milli = self.gpus * MILLI + self.gpu_milli + self.mig_milli
        object.__setattr__(self, "quota_milli", milli)

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
    """
    Objective points of a placed job, with its fewest replicas if `further` is given; of each placed replica
    if the class is elastic and it is not.
    """
    further: tuple[int, ...] = ()
    """Points of each replica beyond the fewest, where they differ: none brings more than one before."""
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
    RESUME = "resume"
    """A running job, stopped now, starts again in a later slot."""

    @property
    def makes_good(self) -> bool:
        """True if it makes good what an incumbent loses by leaving, and so is part of what that costs."""
        return self in (Role.MOVE, Role.RESUME)


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
    """Index into `Problem.incumbents` of the one job, with MOVE, GROW and RESUME."""
    priority: int = 0
    """Classes of higher priority are served first; that of all is 0 where priority only weighs."""
    fixed_points: int = 0
    """Of each placed job, beside those of its option: never positive."""
    rank: int = 0
    """It may take what preempted jobs of this rank, or a lower one, have freed."""
    claim: int = 0
    """It may also take what those incumbents free that have this number in their `claims`; 0 is no claim."""
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
    def starts_alone(self) -> bool:
        """True if its jobs wait, and start whether others do or not."""
        return self.role is Role.START and self.co_start is None

    @property
    def needs_one_domain(self) -> bool:
        """True if its jobs have several replicas that must all be in one domain."""
        return self.minimum > 1 and self.together.required is not None

    @property
    def firm(self) -> bool:
        """True if its one job holds a promise, or is to be given one before anybody else."""
        return self.promise is not None or self.starving is not None

    @property
    def scaled(self) -> bool:
        """True if its further replicas may bring unequal points."""
        return any(option.further for option in self.options)

    def most(self, option: Option) -> int:
        """Replicas that a job does best with: the most of which each brings as much as it costs."""
        if option.further:
            return self.minimum + sum(points > 0 for points in option.further)
        return self.minimum if self.elastic and option.points < 0 else self.maximum

    @property
    def per_replica(self) -> bool:
        """True if the points of an option are those of one replica, each of which brings the same."""
        return (self.elastic or self.role is Role.GROW) and not self.scaled

    def points(self, option: Option, replicas: int) -> int:
        """Objective points of one job placed with so many replicas, what its nodes cost left out."""
        placed = option.points * replicas if self.per_replica else option.points
        more = sum(option.further[: max(0, replicas - self.minimum)])
        return self.fixed_points + option.once + placed + more

    def typical(self, option: Option) -> int:
        """Replicas that it starts with if there is room: those of which each brings as much as the first."""
        if not option.further:
            return self.most(option)
        return self.minimum + sum(
            points > 0 and points * self.minimum >= option.points for points in option.further
        )

    @property
    def usual(self) -> int:
        """Replicas by which its place in the order is found: the fewest where further ones may bring less."""
        return self.minimum if self.scaled else self.maximum

    @property
    def most_points(self) -> int:
        """Points of one job at its best, started in slot 0."""
        sizes = (self.minimum, self.maximum)
        found = (self.points(option, size) for option in self.options for size in (*sizes, self.most(option)))
        return max(found, default=0)

    @property
    def best_points(self) -> int:
        """Points of one job at its best, started in any slot."""
        return max((self.most_points, *self._later_points))

    @property
    def best_later_points(self) -> int:
        """Points of one job at its best, started in a later slot; 0 if it had better not start then."""
        return max((0, *self._later_points))

    @property
    def _later_points(self) -> Iterator[int]:
        return (points for option in self.options for points in option.later[1:] if points is not None)


class Hold(NamedTuple):
    """What one replica of an incumbent holds."""

    node: int | None
    """Index into `Problem.nodes`; None on a node that takes nothing new, where leaving frees nothing."""
    gpus: tuple[int, ...] = ()
    """Indices of whole GPUs, or of the GPU of a share."""
    slices: tuple[tuple[int, MigInstance], ...] = ()
    """(GPU index, MIG instance)."""


class Incumbent(NamedTuple):
    """A running job that may be stopped, shrunk, grown or moved."""

    job: str
    shape: Shape
    """Of each replica."""
    holds: tuple[Hold, ...]
    queue: int
    gpu_model: str | None
    rank: int
    """
    What it frees by being stopped or shrunk, of nodes, quotas and power, is for this rank or above, and for
    classes with a claim on what it holds. 0 if it may be neither.
    """
    stop_points: int | None
    """Of stopping it, negative; None if it may not be stopped."""
    leave_points: int
    """Of leaving its old places to be moved, beside the points of the class MOVE; not positive."""
    shrink_points: tuple[int, ...]
    """Of each replica given up, in order: negative, none loses less than one before it."""
    resize_points: int
    """Of shrinking at all, not positive."""
    fewest: int
    """Replicas it must keep unless it leaves; their number where it may not shrink."""
    move: int | None = None
    """Its class with role MOVE; None if it may not be moved."""
    grow: int | None = None
    """Its class with role GROW."""
    resume: int | None = None
    """Its class with role RESUME; None if it cannot start again within the horizon once it is stopped."""
    on_leaving: int = 0
    """Points gained if it leaves every node that is to be drained (by stopping or moving)."""
    until: int = 1
    """The slot before which it is gone if it stays; H if it is there to the end."""
    claims: tuple[int, ...] = ()
    """Claims of classes whose queues may take back what its queue borrows, sorted."""

    @property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that all of it holds."""
        return self.shape.quota_milli * len(self.holds)

    @property
    def shrinkable(self) -> bool:
        """True if it may run with fewer replicas."""
        return self.fewest < len(self.holds)

    @property
    def scaled(self) -> bool:
        """True if the replicas that it may give up bring unequal points."""
        return len(set(self.shrink_points)) > 1
