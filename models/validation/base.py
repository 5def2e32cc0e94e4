"""Inconsistency and Damage, the view of a snapshot that the checks share, and damage as a plan states it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from pydantic import Field

from gpuplan.models.errors import Suggestions, truncated_names
from gpuplan.models.mig import MigGeometry, mig_geometry
from gpuplan.models.plan.reason import PlanBase
from gpuplan.models.units import Name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Running
    from gpuplan.models.queue import Queue
    from gpuplan.models.snapshot import Snapshot


Location: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from a document's root to one of its entries."""

NODES: Location = ("cluster", "nodes")
POOLS: Location = ("cluster", "pools")
DATASETS: Location = ("cluster", "datasets")
RACK_POWER: Location = ("cluster", "rack_power")
RESERVATIONS: Location = ("cluster", "reservations")
TARIFFS: Location = ("cluster", "tariffs")


class DamageKind(StrEnum):
    """Type of damage: a lost resource that a document still refers to."""

    NODE_GONE = "NodeGone"
    """A job runs on a node that the cluster does not have."""
    NODE_DOWN = "NodeDown"
    """A job runs on a node that is not ready."""
    GPU_GONE = "GpuGone"
    """A job holds a GPU that its node does not have."""
    GPU_UNHEALTHY = "GpuUnhealthy"
    """A job holds a GPU that is not healthy."""
    MIG_CHANGED = "MigChanged"
    """A job holds a MIG instance that does not exist, or a GPU that has been switched to MIG mode."""
    REPLICAS_LOST = "ReplicasLost"
    """A gang runs with fewer replicas than its minimum."""
    GROUP_PART_STARTED = "GroupPartStarted"
    """A job runs of a `co_start` group of which others have never started."""
    NODE_OVERFULL = "NodeOverfull"
    """Jobs hold more CPU, memory, disk or other resources of a node than it has."""
    RESERVATION_SHORT = "ReservationShort"
    """A reservation names nodes that the cluster does not have, or more nodes than match."""
    RACK_EMPTY = "RackEmpty"
    """A power cap is for a rack without nodes."""
    PROFILE_NOT_OFFERED = "ProfileNotOffered"
    """A job requests a MIG profile that no GPU model of the cluster supports."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A change of the cluster that invalidates a statement, which is then not an error of its author."""

    kind: DamageKind
    cause: str
    """Short text, such as `node n3 is gone`."""


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A statement of a snapshot that contradicts another, or refers to nothing."""

    location: Location
    """Location in the snapshot's document, with collections in the order of the snapshot."""
    message: str
    contradicts: Location | None = None
    """Location of the earlier statement, if there is one."""
    damage: Damage | None = None
    """Damage, if the cluster has changed since: planning continues without what is lost. None is an error."""


@dataclass(frozen=True)
class SnapshotView:
    """A snapshot with look-up tables for checks; of entries with the same name the first counts."""

    snapshot: Snapshot
    near: Suggestions = field(default_factory=Suggestions)

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

    def unknown(
        self,
        location: Location,
        statement: str,
        name: str,
        known: Collection[str],
        damage: Damage | None = None,
    ) -> Inconsistency:
        """A statement that refers to a name that is not known, with those that are and the nearest one."""
        names = truncated_names(known) or "none"
        message = f"{statement}.\n  Known: {names}.{self.near.hint(name, known)}"
        return Inconsistency(location, message, damage=damage)

    def running(self) -> Iterator[tuple[Location, Job, Running]]:
        """Running jobs, each with the location of its `running` entry."""
        for index, job in enumerate(self.snapshot.jobs):
            if job.running:
                yield ("jobs", index, "running"), job, job.running


def gpu_indices(count: int) -> str:
    """The valid GPU indices of a node, as text after "expected"."""
    if count < 2:
        return "gpu 0, its only one" if count else "no GPU, as the node has none"
    return f"one of its {count} GPUs, 0 to {count - 1}"


def cycle_text(names: Sequence[str]) -> str:
    """A cycle as `a -> b -> a`; of a long one the middle is left out."""
    shown = names if len(names) <= _LONGEST_CYCLE else [*names[: _LONGEST_CYCLE - 2], "…", names[-1]]
    return " -> ".join(shown)


_LONGEST_CYCLE: Final = 12
"""Names of a cycle that are told: a few lines of a terminal."""


# Damage found by a plan, and its outcome.


class FindingOutcome(StrEnum):
    """Outcome of a damage."""

    RESTARTED = "restarted"
    """The job gives up its places, and all its replicas start again in this plan."""
    WAITING = "waiting"
    """The job gives up its places and waits again."""
    CONTINUED = "continued"
    """The elastic job continues with its remaining replicas."""
    COMPLETED = "completed"
    """The elastic job continues with its remaining replicas, and gets new ones in this plan."""
    LEFT = "left"
    """Unchanged: the job may not be interrupted, or no job is affected."""


class DamageFinding(PlanBase):
    """A damaged job, node, rack or reservation; planning continued without what is lost."""

    subject: str
    """Damaged subject, such as `job train-a` or `node n3`."""
    job: Name | None = Field(default=None, exclude_if=lambda value: value is None)
    """The job, if the subject is a running job."""
    kinds: tuple[DamageKind, ...]
    """Types of damage, each once."""
    text: str
    """The damage in words, for people."""
    outcome: FindingOutcome
    """Outcome of the damage."""
