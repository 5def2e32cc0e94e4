"""Target: the desired state of the cluster, which the verifier checks and a plan is derived from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement, Replica


@dataclass(frozen=True, slots=True)
class LaterStart:
    """A start in a later slot."""

    job: str
    slot: int
    """At least 1; the job starts at the beginning of the slot."""
    replicas: tuple[Replica, ...]
    """Its places with GPU indices; an elastic job is planned with its minimum number of replicas."""
    promised: bool = True
    """True: the places are reserved for the job from now on. False: this start is only projected."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Desired placements and nodes."""

    placements: tuple[Placement, ...]
    """Placements of all jobs that run, including running jobs that stay, sorted by job."""
    added: tuple[Node, ...] = ()
    """Nodes to be added to pools."""
    removed: tuple[str, ...] = ()
    """Names of nodes to be removed, sorted."""
    planned: tuple[LaterStart, ...] = ()
    """Later starts of jobs that are pending or preempted now, sorted by job."""
