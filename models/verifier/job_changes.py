"""
Occupant: a placement with the change of its job, and which of its replicas are new.

Replicas have no names: two replicas are the same if they hold the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.placement import Holding, Placement, Replica, holding, same_holdings, unmatched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.job import Job


class Change(StrEnum):
    """Change of a job by its placement."""

    STARTED = "started"
    """The job is pending in the snapshot."""
    KEPT = "kept"
    """It runs and keeps exactly what it holds."""
    MOVED = "moved"
    """It runs, and keeps the number of replicas but not all places."""
    GROWN = "grown"
    """It runs, and keeps all its replicas and gets more."""
    SHRUNK = "shrunk"
    """It runs, and keeps only some of its replicas."""
    REPLACED = "replaced"
    """It runs, with another number of replicas and new places: never allowed."""
    COPY = "copy"
    """A second placement of a running job: never allowed."""
    UNKNOWN = "unknown"
    """The snapshot has no such job: never allowed."""


KEPT: Final = Change.KEPT
"""A module constant, because attribute access on an enumeration is slow in the hot loops."""

JUDGED = frozenset({Change.STARTED, Change.MOVED, Change.GROWN, Change.SHRUNK})
"""Changes that rules about jobs check; changes that are never allowed are reported once."""


@dataclass(frozen=True, slots=True)
class JudgedPlacement:
    """A placement with its change."""

    placement: Placement
    job: Job | None
    change: Change
    new: Collection[int]
    """Numbers of the new replicas."""

    @property
    def new_replicas(self) -> Iterator[Replica]:
        """The new replicas."""
        return (self.placement.replicas[number] for number in sorted(self.new))


def judge_placement(job: Job | None, placement: Placement) -> JudgedPlacement:
    """The change by a placement, if it is the only one of its job."""
    everything = range(len(placement.replicas))
    if job is None:
        return JudgedPlacement(placement, job, Change.UNKNOWN, everything)
    if job.running is None:
        return JudgedPlacement(placement, job, Change.STARTED, everything)
    before, after = job.running.replicas, placement.replicas
    if same_holdings(before, after):
        return JudgedPlacement(placement, job, Change.KEPT, ())
    if len(before) == len(after):
        return JudgedPlacement(placement, job, Change.MOVED, everything)
    new, gone = unmatched(after, before), unmatched(before, after)
    if not gone:
        return JudgedPlacement(placement, job, Change.GROWN, frozenset(new))
    if not new:
        return JudgedPlacement(placement, job, Change.SHRUNK, ())
    return JudgedPlacement(placement, job, Change.REPLACED, everything)


def placement_precedence(occupant: JudgedPlacement) -> tuple[bool, list[Holding]]:
    """Sort key: of several placements of a running job the smallest counts, an unchanged one first."""
    return occupant.change is not Change.KEPT, sorted(map(holding, occupant.placement.replicas))
