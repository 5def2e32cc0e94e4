"""
Case: what the verifier judges, with the look-ups that its rules share.

A placement is *kept* where a running job stays exactly as it is, and *started* where its job waits in the
snapshot. Rules about shared things count everybody, but blame only where a placement takes part that is not
kept: what running jobs already do to each other is no fault of the plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from planner.models.placement import GpuShare

if TYPE_CHECKING:
    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.placement import MigSlice, Placement, Replica
    from planner.models.snapshot import Snapshot

Holding: TypeAlias = tuple[object, ...]
"""All that a replica holds, as a value that compares and hashes."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One part of a GPU in the hands of one replica."""

    job: str
    held: GpuShare | MigSlice
    kept: bool


@dataclass(frozen=True)
class Case:
    """A snapshot and the placements that shall hold."""

    snapshot: Snapshot
    placements: tuple[Placement, ...]

    @property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name."""
        return self.snapshot.cluster.node_by_name

    @property
    def jobs(self) -> dict[str, Job]:
        """Jobs by name."""
        return self.snapshot.job_by_name

    @cached_property
    def started(self) -> tuple[tuple[Job, Placement], ...]:
        """Placements of jobs that wait in the snapshot."""
        known = ((self.jobs.get(placement.job), placement) for placement in self.placements)
        return tuple((job, placement) for job, placement in known if job and job.running is None)

    @cached_property
    def kept(self) -> dict[str, int]:
        """
        Index of the placement of each running job that stays exactly as it is, by job name.

        If a placement is repeated, one of the copies is the one that is kept.
        """
        jobs = ((index, self.jobs.get(placement.job)) for index, placement in enumerate(self.placements))
        return {
            job.name: index
            for index, job in jobs
            if job and job.running and same_holdings(job.running.replicas, self.placements[index].replicas)
        }

    @cached_property
    def newly_used_gpus(self) -> dict[tuple[str, int], list[Holder]]:
        """All holders of each existing GPU on which not every holder is kept, by node name and GPU index."""
        holders: dict[tuple[str, int], list[Holder]] = {}
        for position, placement in enumerate(self.placements):
            kept = self.kept.get(placement.job) == position
            for replica in placement.replicas:
                for held in replica.gpus:
                    holder = Holder(placement.job, held, kept)
                    holders.setdefault((replica.node, held.index), []).append(holder)
        return {
            (name, index): using
            for (name, index), using in sorted(holders.items())
            if not all(holder.kept for holder in using)
            and (node := self.nodes.get(name))
            and index < node.gpu_count
        }

    def gpu_models(self, placement: Placement) -> tuple[str, ...]:
        """GPU models, sorted, of the replicas that hold GPUs."""
        nodes = (self.nodes.get(replica.node) for replica in placement.replicas if replica.gpus)
        return tuple(sorted({node.gpu_model for node in nodes if node and node.gpu_model}))


def same_holdings(one: tuple[Replica, ...], other: tuple[Replica, ...]) -> bool:
    """True if two sets of replicas hold the same; the order of replicas and of their GPUs means nothing."""
    return one == other or Counter(map(holding, one)) == Counter(map(holding, other))


def holding(replica: Replica) -> Holding:
    """The canonical value of what a replica holds."""
    return (
        replica.node,
        tuple(
            sorted(
                (held.index, held.milli, "", 0)
                if isinstance(held, GpuShare)
                else (held.index, 0, held.profile, held.start)
                for held in replica.gpus
            )
        ),
        replica.cpu_milli,
        replica.memory_mib,
        replica.disk_mib,
        tuple(sorted((name, amount) for name, amount in replica.resources.items() if amount)),
    )
