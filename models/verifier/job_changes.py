"""
Occupant: a placement with what becomes of its job, and which of its replicas are new.

Replicas have no names: two of them are the same if they hold the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.replica_identity import holding, same_holdings, unmatched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.replica_identity import Holding


class Change(StrEnum):
    """What a placement means for its job."""

    STARTED = "started"
    """The job waits in the snapshot."""
    KEPT = "kept"
    """It runs and holds exactly what it held."""
    MOVED = "moved"
    """It runs with as many replicas, not the same."""
    GROWN = "grown"
    """It runs with all its replicas and more."""
    SHRUNK = "shrunk"
    """It runs with some of its replicas."""
    REPLACED = "replaced"
    """It runs with fewer or more replicas and not in the old places: never legal."""
    COPY = "copy"
    """A second placement of a job that runs: never legal."""
    UNKNOWN = "unknown"
    """The snapshot has no such job: never legal."""


KEPT: Final = Change.KEPT
"""Asked for often: members of enumerations are not found at once."""

JUDGED = frozenset({Change.STARTED, Change.MOVED, Change.GROWN, Change.SHRUNK})
"""Changes that a job rule looks at; what is never legal is told once."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A placement with what it means."""

    placement: Placement
    job: Job | None
    change: Change
    new: Collection[int]
    """Numbers of the replicas that nobody held before."""

    @property
    def new_replicas(self) -> Iterator[Replica]:
        """Replicas that nobody held before."""
        return (self.placement.replicas[number] for number in sorted(self.new))


def occupant_of(job: Job | None, placement: Placement) -> Occupant:
    """What a placement means, were it the only one of its job."""
    everything = range(len(placement.replicas))
    if job is None:
        return Occupant(placement, job, Change.UNKNOWN, everything)
    if job.running is None:
        return Occupant(placement, job, Change.STARTED, everything)
    before, after = job.running.replicas, placement.replicas
    if same_holdings(before, after):
        return Occupant(placement, job, Change.KEPT, ())
    if len(before) == len(after):
        return Occupant(placement, job, Change.MOVED, everything)
    new, gone = unmatched(after, before), unmatched(before, after)
    if not gone:
        return Occupant(placement, job, Change.GROWN, frozenset(new))
    if not new:
        return Occupant(placement, job, Change.SHRUNK, ())
    return Occupant(placement, job, Change.REPLACED, everything)


def precedence(occupant: Occupant) -> tuple[bool, list[Holding]]:
    """Of several placements of a running job the least counts; one that changes nothing is less than any."""
    return occupant.change is not Change.KEPT, sorted(map(holding, occupant.placement.replicas))
