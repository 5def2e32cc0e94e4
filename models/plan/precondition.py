"""Preconditions: what an action counts on, judged when its turn comes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.plan.base import PlanPart
from gpuplan.models.units import Mib, Milli, Name


class JobWaits(PlanPart):
    """The job still waits and its description has not changed."""

    kind: Literal["job_waits"] = "job_waits"
    """The kind of precondition: `job_waits`."""
    job: Name
    """Job that must wait."""
    job_fingerprint: str
    """Fingerprint of the job's document in the snapshot."""


class Free(PlanPart):
    """
    The node takes new jobs and has free what one or more replicas of the action will hold there.

    CPU and memory as overcommit counts them; without what the job of the action gives up there itself.
    """

    kind: Literal["free"] = "free"
    """The kind of precondition: `free`."""
    node: Name
    """Node that must have room."""
    gpus: tuple[GpuShare | MigSlice, ...] = ()
    """GPUs, shares and MIG instances that must be free."""
    cpu_milli: Milli = Field(default=0, alias="cpus")
    """CPU cores that must be free."""
    memory_mib: Mib = 0
    """Memory that must be free, in MiB."""
    disk_mib: Mib = 0
    """Local disk that must be free, in MiB."""
    resources: dict[Name, int] = Field(default_factory=dict)
    """Further countable resources that must be free, by name."""


class JobRuns(PlanPart):
    """The job runs where the plan says and its description has not changed."""

    kind: Literal["job_runs"] = "job_runs"
    """The kind of precondition: `job_runs`."""
    job: Name
    """Job that must run."""
    job_fingerprint: str
    """Fingerprint of the job's document in the snapshot, where it runs included."""


class JobDamaged(PlanPart):
    """
    The job still runs where the release says, and some of its places still do not hold.

    Or it has given them up meanwhile: a cluster may do so by itself.
    """

    kind: Literal["job_damaged"] = "job_damaged"
    """The kind of precondition: `job_damaged`."""
    job: Name
    """Job that has lost places."""


class GpuLayout(PlanPart):
    """The GPU has just these MIG instances (None: MIG mode is off), and nobody uses those to be destroyed."""

    kind: Literal["gpu_layout"] = "gpu_layout"
    """The kind of precondition: `gpu_layout`."""
    node: Name
    """Node that has the GPU."""
    gpu: int
    """Index of the GPU on its node."""
    instances: tuple[MigInstance, ...] | None
    """MIG instances that it must have; null is MIG mode off."""
    idle: tuple[MigInstance, ...] = ()
    """Those of them that no job may use."""


class NodeEmpty(PlanPart):
    """The node exists and no job runs on it."""

    kind: Literal["node_empty"] = "node_empty"
    """The kind of precondition: `node_empty`."""
    node: Name
    """Node on which no job may run."""


class NodeExists(PlanPart):
    """The node exists."""

    kind: Literal["node_exists"] = "node_exists"
    """The kind of precondition: `node_exists`."""
    node: Name
    """Node that must exist."""


class NodeAbsent(PlanPart):
    """No node has this name yet."""

    kind: Literal["node_absent"] = "node_absent"
    """The kind of precondition: `node_absent`."""
    node: Name
    """Name that no node may have yet."""


Precondition: TypeAlias = Annotated[
    JobWaits | JobRuns | JobDamaged | Free | GpuLayout | NodeEmpty | NodeExists | NodeAbsent,
    Field(discriminator="kind"),
]
