"""Site and Placed: where replicas stand, by index, before they become placements with names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from planner.models.problem import Hold, Option

Slice: TypeAlias = tuple[int, str, int]
"""(GPU index, profile, start) of a MIG instance."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place for one replica."""

    node: int
    gpus: tuple[int, ...] = ()
    """Indices of whole GPUs, or of the GPU of a share."""
    slices: tuple[Slice, ...] = ()
    """MIG instances."""

    @classmethod
    def of(cls, hold: Hold) -> Site | None:
        """The site of an incumbent's replica; None on a node that takes nothing new."""
        if hold.node is None:
            return None
        slices = tuple((gpu, instance.profile, instance.start) for gpu, instance in hold.slices)
        return cls(hold.node, hold.gpus, slices)


@dataclass(frozen=True, slots=True)
class Placed:
    """One job with the sites it is newly given."""

    job_class: int
    option: Option
    sites: tuple[Site, ...]
