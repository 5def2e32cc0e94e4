"""Aggregate: a solution of the model in terms of the problem, before disaggregation into placements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import MigInstance


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs to place on one set of options, and the nodes of their replicas."""

    jobs: tuple[tuple[int, int], ...]
    """(class, number of its jobs); the classes differ only in points and queue."""
    options: tuple[int, ...]
    """Positions of the options among those of each class."""
    places: tuple[tuple[tuple[int, ...], int], ...]
    """(nodes, number of replicas on them). With a required level all nodes are in one domain."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Evictions, opened and closed nodes, and the number of replicas of each class per node set."""

    stopped: tuple[int, ...] = ()
    """Running jobs that are preempted."""
    moved: tuple[int, ...] = ()
    """Running jobs that migrate."""
    shrunk: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(running job, positions in its `holds` of the replicas that it gives up)."""
    opened: tuple[tuple[int, int], ...] = ()
    """(pool, number of nodes)."""
    closed: tuple[tuple[int, int], ...] = ()
    """(pool, number of nodes), each of which must end up empty."""
    batches: tuple[Batch, ...] = ()
    later: tuple[tuple[int, int, int, int], ...] = ()
    """(class, position of the option, slot, jobs) of starts in later slots, by slot."""
    instances: dict[tuple[int, int], tuple[MigInstance, ...]] = field(default_factory=dict)
    """Newly used MIG instances, by (node, GPU index)."""
