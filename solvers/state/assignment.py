"""Site, Booked and Placed: where replicas are, by index, before they become placements with names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.problem.jobs import FirmReservation, HeldResources, Option, Shape
    from gpuplan.models.problem.problem import Problem

Slice: TypeAlias = tuple[int, str, int]
"""(GPU index, profile, start) of a MIG instance."""

Span: TypeAlias = tuple[int, int]
"""First slot, and the slot after the last."""

NOW: Final[Span] = (0, 1)
"""Slot 0 alone."""


@dataclass(frozen=True, slots=True)
class ReplicaSite:
    """A place for one replica."""

    node: int
    gpus: tuple[int, ...] = ()
    """Indices of whole GPUs, or of the GPU of a share."""
    slices: tuple[Slice, ...] = ()
    """MIG instances."""

    @classmethod
    def of(cls, hold: HeldResources) -> ReplicaSite | None:
        """The site of a running job's replica; None on a node that accepts nothing new."""
        if hold.node is None:
            return None
        slices = tuple((gpu, instance.profile, instance.start) for gpu, instance in hold.slices)
        return cls(hold.node, hold.gpus, slices)


def sites_to_reserve(shape: Shape, holds: Iterable[HeldResources]) -> tuple[ReplicaSite, ...]:
    """Sites to reserve for replicas of a shape, without the indices of whole GPUs."""
    found = (ReplicaSite.of(hold) for hold in holds)
    return tuple(replace(site, gpus=site.gpus if shape.gpu_milli else ()) for site in found if site)


@dataclass(frozen=True, slots=True)
class FutureAssignment:
    """One job with a reserved start in a later slot."""

    job_class: int
    option: int
    """Position among the options of its class."""
    slot: int
    """At least 1."""
    sites: tuple[ReplicaSite, ...]
    """Without indices of whole GPUs: these are chosen when it starts."""


def firm_assignment(problem: Problem, firm: FirmReservation) -> FutureAssignment:
    """A firm reservation of a problem, for a later slot."""
    sites = sites_to_reserve(problem.classes[firm.job_class].shape, firm.holds)
    return FutureAssignment(firm.job_class, firm.option, firm.slot, sites)


@dataclass(frozen=True, slots=True)
class JobAssignment:
    """One job with its new sites."""

    job_class: int
    option: Option
    sites: tuple[ReplicaSite, ...]
