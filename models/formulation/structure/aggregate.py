"""Aggregate: what an answer of the block model says, in the problem's own terms, ready to be realized."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuplan.models.cluster import MigInstance


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs to be placed on one set of options, and where their replicas belong."""

    jobs: tuple[tuple[int, int], ...]
    """(class, how many of its jobs); classes that differ only in points and queue."""
    options: tuple[int, ...]
    """Positions of the options among those of each class."""
    places: tuple[tuple[tuple[int, ...], int], ...]
    """(nodes, replicas to stand on them). With a required level all nodes are in one domain."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Who leaves, which nodes open, and how many replicas of what go where."""

    stopped: tuple[int, ...] = ()
    """Incumbents."""
    moved: tuple[int, ...] = ()
    """Incumbents that leave to be placed anew."""
    shrunk: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(incumbent, positions in its `holds` of the replicas it gives up)."""
    opened: tuple[tuple[int, int], ...] = ()
    """(pool, nodes)."""
    closed: tuple[tuple[int, int], ...] = ()
    """(pool, nodes); each of them is to end up empty."""
    batches: tuple[Batch, ...] = ()
    later: tuple[tuple[int, int, int, int], ...] = ()
    """(class, position of the option, slot, jobs) of starts in later slots, by slot."""
    instances: dict[tuple[int, int], tuple[MigInstance, ...]] = field(default_factory=dict)
    """MIG instances to be in new use, by (node, GPU index)."""
