"""
Constraint: what every rule of a ledger answers about places, and how it follows what is placed.

Slots are an axis: a span that begins in slot 0 is of a job that starts now. A span ends before its second
slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.plan.reason import ReasonCode
    from gpuplan.models.problem.jobs import JobClass, Option, Shape
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a job finds no place: a code of the reasons of waiting jobs, and the amounts behind it."""

    code: ReasonCode
    numbers: Mapping[str, int | str]


class SharedLimit(NamedTuple):
    """A limit on replicas on several nodes together."""

    groups: Ints
    """By position of a node, the index of its group."""
    costs: Ints
    """By position, what a replica takes of what is left to the group; 0 if it takes nothing."""
    left: Sequence[int]
    """By group."""


class JointRoom(NamedTuple):
    """Room of some nodes together for the replicas of one job."""

    room: Ints
    """Replicas for which each node has room by itself."""
    enough: int
    """Replicas up to which is counted."""
    shared: Sequence[SharedLimit] = ()
    domains: Ints | None = None
    """Domain of each node, if all replicas must be in one."""

    @property
    def best(self) -> int:
        """Replicas that fit together, at the best domain."""
        return max(self.by_domain().values(), default=0)

    def by_domain(self) -> dict[int, int]:
        """Replicas that fit together in each domain; without domains in domain 0, which has all nodes."""
        every = np.flatnonzero(self.room)
        if self.domains is None:
            return {0: self._together(every)}
        there = self.domains[every]
        return {int(each): self._together(every[there == each]) for each in np.unique(there)}

    def _together(self, positions: Ints) -> int:
        """Replicas that fit on some of the nodes under the limits that they share."""
        if not self.shared:
            return min(self.enough, int(self.room[positions].sum()))
        left, found = [list(each.left) for each in self.shared], 0
        # The cheapest first: that leaves most to the others.
        costs = np.sum([each.costs[positions] for each in self.shared], axis=0)
        for at in positions[np.argsort(costs, kind="stable")].tolist():
            limits = [(int(each.groups[at]), int(each.costs[at])) for each in self.shared]
            shares = [rest[group] // cost for rest, (group, cost) in zip(left, limits, strict=True) if cost]
            more = max(0, min([int(self.room[at]), *shares]))
            for rest, (group, cost) in zip(left, limits, strict=True):
                rest[group] -= more * cost
            found += more
            if found >= self.enough:
                return self.enough
        return found


class Places:
    """
    What one more job of a class finds, as far as the constraints asked so far say.

    That is: options that are open to it, and for how many of its replicas their nodes have room. The job
    fits if its fewest replicas do, on one of the options if they are several (a gang has one GPU model).
    """

    def __init__(
        self,
        job_class: JobClass,
        tenant: PlacementProfile,
        options: Sequence[Option],
        nodes_of: Callable[[Option], Ints],
    ) -> None:
        """`nodes_of` gives the nodes of an option."""
        self.job_class, self.tenant, self.replicas = job_class, tenant, job_class.minimum
        self.options = list(options)
        self._nodes_of = nodes_of
        self.shared: list[SharedLimit] = []
        """Limits on several nodes together."""
        self.domains: Ints | None = None
        """Domain of each node, if all replicas must be in one."""

    @cached_property
    def nodes(self) -> Ints:
        """The nodes of all options that are open, in order."""
        found: Ints = np.unique(np.concatenate([self._nodes_of(option) for option in self.options]))
        return found

    @cached_property
    def room(self) -> Ints:
        """Replicas for which each node has room by itself, counted up to enough."""
        return np.full(len(self.nodes), self.replicas, dtype=np.int64)

    def limit(self, room: Ints) -> bool:
        """Count no more than this on each node; False if the job no longer fits."""
        self.room = np.minimum(self.room, room)
        return self.fits

    @property
    def fits(self) -> bool:
        """True if the job finds enough room."""
        return self.count() >= self.replicas

    def count(self) -> int:
        """Replicas that fit together, at the best domain."""
        return JointRoom(self.room, self.replicas, self.shared, self.domains).best


class Constraint:
    """
    One rule. It overrides what concerns it: here nothing is refused, kept count of, or paid.

    What counts takes `times`: 1, or -1 to undo the same.
    """

    @property
    def points(self) -> int:
        """Points of all that is counted, compared to changing nothing."""
        return 0

    # --- which places a job may take -----------------------------------------------------------------------

    def admits(self, tenant: PlacementProfile, nodes: Ints) -> Bools | None:
        """True for nodes that a job may use from now on, whatever room they have; None for all."""

    def admits_later(self, index: int, nodes: Ints) -> Bools | None:
        """True for nodes that a job of a class may use from a later slot on; None for all."""

    def room(self, shape: Shape, nodes: Ints, most: int) -> Ints | None:
        """Replicas that fit now on each of the nodes if used for them alone; None for `most`."""

    def fits(self, index: int, site: ReplicaSite, span: Span) -> bool:
        """True if a replica of a class may have exactly this site over a span."""
        return True

    def fits_back(self, incumbent: int, site: ReplicaSite) -> bool:
        """True if a replica of a running job may have its old site again, until its end."""
        return True

    def may_give_up(self, incumbent: int, positions: Collection[int]) -> bool:
        """True if a running job may be made to give up some of its `holds`, given the new jobs."""
        return True

    def price(self, tenant: PlacementProfile, nodes: Ints) -> Ints | None:
        """Points, negative for a price, of one more replica on each of the nodes; None for none."""

    def shortage(self, places: Places) -> Shortage | None:
        """
        What one more job of a class lacks; None, and the places are limited, if it finds enough.

        Constraints are asked one after the other; each looks at what those before it left.
        """

    # --- what is placed ------------------------------------------------------------------------------------

    def take(self, index: int, site: ReplicaSite, span: Span, times: int) -> None:
        """Count a new replica of a class on a site over a span."""

    def count_job(
        self, index: int, option: Option, sites: Sequence[ReplicaSite], slot: int, times: int
    ) -> None:
        """Count a job of a class that starts in a slot, on sites that are taken."""

    def leave(self, incumbent: int, site: ReplicaSite, times: int) -> None:
        """Count a replica of a running job that leaves its site."""

    def give_up(self, incumbent: int, positions: Collection[int], times: int, moves: bool) -> None:
        """Count replicas that a running job gives up: to migrate if it `moves`, else by preemption."""

    def disrupt(self, incumbent: int, before: JobDisruption | None, after: JobDisruption | None) -> None:
        """Follow how a running job leaves its places."""


def overriding(constraints: Iterable[Constraint], name: str) -> tuple[Constraint, ...]:
    """The constraints that do anything in a method: the others cost nothing."""
    neutral = getattr(Constraint, name)
    return tuple(each for each in constraints if getattr(type(each), name) is not neutral)


def methods(constraints: Iterable[Constraint], name: str) -> tuple[Callable[..., Any], ...]:
    """A method of all constraints that do anything in it."""
    return tuple(getattr(each, name) for each in overriding(constraints, name))


def together(constraints: Iterable[Constraint], name: str) -> Callable[..., None]:
    """A method of all constraints as one step."""
    found = methods(constraints, name)
    return found[0] if len(found) == 1 else partial(_call_each, found)


def _call_each(steps: tuple[Callable[..., None], ...], *arguments: object) -> None:
    for step in steps:
        step(*arguments)
