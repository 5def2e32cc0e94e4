"""Target: the cluster as it shall be, which the verifier judges and a plan is drafted from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement, Replica


@dataclass(frozen=True, slots=True)
class Planned:
    """A start in a later slot."""

    job: str
    slot: int
    """At least 1; the start is the beginning of the slot."""
    replicas: tuple[Replica, ...]
    """Its places, GPU indices included; an elastic job is planned with the fewest replicas it may have."""
    promised: bool = True
    """The job holds its places from now on; False: this start is only foreseen."""


@dataclass(frozen=True, slots=True)
class Target:
    """Who shall run where, and which nodes there shall be."""

    placements: tuple[Placement, ...]
    """Everything that shall run, running jobs that stay included, sorted by job."""
    added: tuple[Node, ...] = ()
    """New nodes of pools."""
    removed: tuple[str, ...] = ()
    """Names of nodes to be removed, sorted."""
    planned: tuple[Planned, ...] = ()
    """Later starts of jobs that wait, or are stopped, now; sorted by job."""
