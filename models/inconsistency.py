"""Inconsistency, and the view of a snapshot that the consistency checks share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from planner.models.mig import MigGeometry, mig_geometry
from planner.models.near_miss import NearMisses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.cluster import Node
    from planner.models.job import Job, Running
    from planner.models.queue import Queue
    from planner.models.snapshot import Snapshot

Location: TypeAlias = tuple[str | int, ...]
"""Keys and list indices that lead from a document's root to one of its entries."""

NODES: Location = ("cluster", "nodes")
POOLS: Location = ("cluster", "pools")
DATASETS: Location = ("cluster", "datasets")
RACK_POWER: Location = ("cluster", "rack_power")
RESERVATIONS: Location = ("cluster", "reservations")
TARIFFS: Location = ("cluster", "tariffs")


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """One statement of a snapshot that contradicts another, or refers to nothing."""

    location: Location
    """In the snapshot's document, collections in the order of the snapshot."""
    message: str
    contradicts: Location | None = None
    """The earlier statement, where there is one to point at."""


@dataclass(frozen=True)
class View:
    """A snapshot with the look-ups that several checks need; of entries with one name the first counts."""

    snapshot: Snapshot
    near: NearMisses = field(default_factory=NearMisses)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in reversed(self.snapshot.cluster.nodes)}

    @cached_property
    def queues(self) -> dict[str, Queue]:
        """Queues by name."""
        return {queue.name: queue for queue in reversed(self.snapshot.queues)}

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """Jobs by name."""
        return {job.name: job for job in reversed(self.snapshot.jobs)}

    @cached_property
    def geometries(self) -> dict[str, MigGeometry]:
        """MIG geometry of every GPU model of the cluster and its pools that has one."""
        cluster = self.snapshot.cluster
        nodes = (*cluster.nodes, *(pool.template for pool in cluster.pools))
        models = sorted({node.gpus.model for node in nodes if node.gpus})
        return {model: geometry for model in models if (geometry := mig_geometry(model))}

    def running(self) -> Iterator[tuple[Location, Job, Running]]:
        """Running jobs, each with the location of what it says about running."""
        for index, job in enumerate(self.snapshot.jobs):
            if job.running:
                yield ("jobs", index, "running"), job, job.running


def gpu_indices(count: int) -> str:
    """The GPUs of a node as what was expected instead of another one."""
    if count < 2:
        return "gpu 0, its only one" if count else "no GPU, as the node has none"
    return f"one of its {count} GPUs, 0 to {count - 1}"
