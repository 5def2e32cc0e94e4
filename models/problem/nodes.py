"""The nodes of a Problem: groups, free and returning resources, and nodes that pools may add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import MigInstance, Node


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are eligible for the same jobs at the same price: equal GPUs and equal filter results."""

    gpu_model: str | None
    gpus: int
    """GPUs per node."""
    nodes: tuple[int, ...]
    """Indices into `Problem.nodes`."""
    pool: int | None = None
    """Index into `Problem.pools`, for a group of nodes that do not exist yet; all of them are equal."""


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A healthy GPU in MIG mode."""

    index: int
    idle: tuple[MigInstance, ...]
    """Instances that exist and are unused."""
    used: tuple[MigInstance, ...]
    """Instances in use by any running job."""


@dataclass(frozen=True, slots=True)
class ReplicaRelease:
    """Resources that one replica of a running job returns to its node at the expected end of the job."""

    slot: int
    """First slot in which they are free; at least 1, less than H."""
    gpus: tuple[tuple[int, int], ...]
    """(GPU index, thousandths); healthy GPUs only."""
    slices: tuple[tuple[int, MigInstance], ...]
    """(GPU index, MIG instance)."""
    amounts: tuple[int, ...]
    """Amount of each of `Problem.resources`."""
    incumbent: int | None = None
    """Index into `Problem.incumbents`: if that job is evicted, all this is free at once."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """Free resources of one node while all running jobs stay."""

    name: str
    gpus: tuple[int, ...]
    """Thousandths free by GPU index; 0 in MIG mode; never negative."""
    amounts: tuple[int, ...]
    """Free amount of each of `Problem.resources`; never negative."""
    overdrawn: tuple[int, ...] = ()
    """Usage of each resource beyond capacity, which released amounts cover first; empty if there is none."""
    mig: tuple[MigGpu, ...] = ()
    closing_points: int | None = None
    """
    Points for removing the node after all incumbents have left it; None if it may not be removed, for example
    where a job runs that cannot leave.
    """
    unhealthy: tuple[int, ...] = ()
    """Indices of GPUs that no job may use; holds of running jobs leave them out."""
    gpu_groups: tuple[tuple[int, int], ...] = ()
    """(NVLink group, NUMA node) by GPU index, -1 if unknown; empty if nothing is known."""
    releases: tuple[ReplicaRelease, ...] = ()
    """Resources that running jobs return when they end within the horizon, by slot."""
    opens: int = 0
    """First slot in which it accepts jobs; above 0 while it is being provisioned."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """Nodes that may be added to a pool; they are last in `Problem.nodes`, one group per pool."""

    name: str
    nodes: tuple[Node, ...]
    """The nodes to be added, in the order in which they are opened."""
    opening_points: int
    """Price of one node, not negative."""
    closable: tuple[int, ...]
    """Nodes of the pool, indices into `Problem.nodes`, that may be removed when empty."""
    most_closed: int
    """Number of nodes that may be removed until the pool is at its minimum (without opened ones)."""
