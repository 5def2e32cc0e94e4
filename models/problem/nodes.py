"""The nodes of a Problem: groups, what each has free and gets back, and those that pools may give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import MigInstance, Node


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that the same jobs may use at the same price: same GPUs, same answer to every filter."""

    gpu_model: str | None
    gpus: int
    """GPUs per node."""
    nodes: tuple[int, ...]
    """Indices into `Problem.nodes`."""
    pool: int | None = None
    """Index into `Problem.pools` of a group of nodes that do not exist yet; all of them are equal."""


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A healthy GPU in MIG mode."""

    index: int
    idle: tuple[MigInstance, ...]
    """Instances that exist and that nobody uses."""
    used: tuple[MigInstance, ...]
    """Instances in use, those of incumbents included."""


@dataclass(frozen=True, slots=True)
class Return:
    """What one replica of a running job gives back to its node when the job is expected to end."""

    slot: int
    """From this slot on it is free; at least 1, less than H."""
    gpus: tuple[tuple[int, int], ...]
    """(GPU index, thousandths); healthy GPUs only."""
    slices: tuple[tuple[int, MigInstance], ...]
    """(GPU index, MIG instance)."""
    amounts: tuple[int, ...]
    """Of each of `Problem.resources`."""
    incumbent: int | None = None
    """Index into `Problem.incumbents`: if it leaves, it gives all this back at once."""


@dataclass(frozen=True, slots=True)
class FreeNode:
    """What one node has free while every running job stays."""

    name: str
    gpus: tuple[int, ...]
    """Thousandths free by GPU index; 0 in MIG mode; never negative."""
    amounts: tuple[int, ...]
    """Free amount of each of `Problem.resources`; never negative."""
    overdrawn: tuple[int, ...] = ()
    """How much of each resource is held beyond what there is, to be paid back first; empty if nothing is."""
    mig: tuple[MigGpu, ...] = ()
    closing_points: int | None = None
    """
    What removing the node brings once all incumbents have left it; None if it may not be removed, as where a
    job runs that is no incumbent.
    """
    unhealthy: tuple[int, ...] = ()
    """Indices of GPUs that nobody gets; holds of incumbents leave them out."""
    gpu_groups: tuple[tuple[int, int], ...] = ()
    """(NVLink group, NUMA node) by GPU index, -1 where unknown; empty if nothing is known."""
    returns: tuple[Return, ...] = ()
    """What running jobs give back as they end within the horizon, by slot."""
    opens: int = 0
    """The slot from which on it takes jobs; above 0 while it is being provisioned."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """Nodes a pool may still be given; they stand last in `Problem.nodes`, one group a pool."""

    name: str
    nodes: tuple[Node, ...]
    """As they would be, in the order in which they are opened."""
    opening_points: int
    """Price of one, not negative."""
    closable: tuple[int, ...]
    """Nodes of the pool, indices into `Problem.nodes`, that may be removed once empty."""
    most_closed: int
    """Nodes that may be removed before the pool is at its minimum (opened ones not counted)."""
