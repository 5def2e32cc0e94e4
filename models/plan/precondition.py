"""Preconditions of an action, checked just before it is carried out."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from gpuplan.models.cluster import MigInstance
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.plan.reason import PlanBase
from gpuplan.models.units import Mib, Milli, Name


class JobWaits(PlanBase):
    """The job is still pending and its description has not changed."""

    kind: Literal["job_waits"] = "job_waits"
    job: Name
    """Job that must be pending."""
    job_fingerprint: str
    """Fingerprint of the job's document in the snapshot."""


class Free(PlanBase):
    """
    The node accepts jobs and has enough free resources for one or more replicas of the action.

    CPU and memory count under overcommit; what the job of the action itself gives up there is subtracted.
    """

    kind: Literal["free"] = "free"
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


class JobRuns(PlanBase):
    """The job still runs where the plan says and its description has not changed."""

    kind: Literal["job_runs"] = "job_runs"
    job: Name
    """Job that must run."""
    job_fingerprint: str
    """Fingerprint of the job's document in the snapshot, including its running placement."""


class JobDamaged(PlanBase):
    """
    The job still runs where the release says, and some of its places are still lost.

    It also holds if the job has already given them up: a cluster may do so itself.
    """

    kind: Literal["job_damaged"] = "job_damaged"
    job: Name
    """Job that has lost places."""


class GpuLayout(PlanBase):
    """The GPU has exactly these MIG instances (None: MIG mode off), and those to be destroyed are unused."""

    kind: Literal["gpu_layout"] = "gpu_layout"
    node: Name
    """Node that has the GPU."""
    gpu: int
    """Index of the GPU on its node."""
    instances: tuple[MigInstance, ...] | None
    """Required MIG instances; null means MIG mode off."""
    idle: tuple[MigInstance, ...] = ()
    """Instances among them that no job may use."""


class NodeEmpty(PlanBase):
    """The node exists and no job runs on it."""

    kind: Literal["node_empty"] = "node_empty"
    node: Name
    """Node on which no job may run."""


class NodeExists(PlanBase):
    """The node exists."""

    kind: Literal["node_exists"] = "node_exists"
    node: Name
    """Node that must exist."""


class NodeAbsent(PlanBase):
    """No node has this name yet."""

    kind: Literal["node_absent"] = "node_absent"
    node: Name
    """Name that no node may have yet."""


Precondition: TypeAlias = Annotated[
    JobWaits | JobRuns | JobDamaged | Free | GpuLayout | NodeEmpty | NodeExists | NodeAbsent,
    Field(discriminator="kind"),
]
