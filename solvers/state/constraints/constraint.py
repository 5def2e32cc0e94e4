"""
Constraint: what every rule of a ledger answers about places, and how it follows what is placed.

Slots are an axis: a span that begins in slot 0 is of a job that starts now. A span ends before its second
slot.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option, Shape
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.disruption_state import JobDisruption
    from gpuplan.solvers.state.placement_profile import PlacementProfile

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]


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
