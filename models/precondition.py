"""Preconditions: what an action counts on, judged when its turn comes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from planner.models.cluster import MigInstance
from planner.models.placement import GpuShare, MigSlice
from planner.models.plan_part import PlanPart
from planner.models.units import Mib, Milli, Name


class JobWaits(PlanPart):
    """The job still waits and its description has not changed."""

    kind: Literal["job_waits"] = "job_waits"
    job: Name
    job_fingerprint: str
    """Of the job's document in the snapshot."""


class Free(PlanPart):
    """
    The node takes new jobs and has free what one or more replicas of the action will hold there.

    CPU and memory as overcommit counts them; without what the job of the action gives up there itself.
    """

    kind: Literal["free"] = "free"
    node: Name
    gpus: tuple[GpuShare | MigSlice, ...] = ()
    cpu_milli: Milli = Field(default=0, alias="cpus")
    memory_mib: Mib = 0
    disk_mib: Mib = 0
    resources: dict[Name, int] = Field(default_factory=dict)


class JobRuns(PlanPart):
    """The job runs where the plan says and its description has not changed."""

    kind: Literal["job_runs"] = "job_runs"
    job: Name
    job_fingerprint: str
    """Of the job's document in the snapshot, where it runs included."""


class GpuLayout(PlanPart):
    """The GPU has just these MIG instances (None: MIG mode is off), and nobody uses those to be destroyed."""

    kind: Literal["gpu_layout"] = "gpu_layout"
    node: Name
    gpu: int
    instances: tuple[MigInstance, ...] | None
    idle: tuple[MigInstance, ...] = ()
    """Those of them that nobody may use."""


class NodeEmpty(PlanPart):
    """The node exists and no job runs on it."""

    kind: Literal["node_empty"] = "node_empty"
    node: Name


class NodeExists(PlanPart):
    """The node exists."""

    kind: Literal["node_exists"] = "node_exists"
    node: Name


class NodeAbsent(PlanPart):
    """No node has this name yet."""

    kind: Literal["node_absent"] = "node_absent"
    node: Name


Precondition: TypeAlias = Annotated[
    JobWaits | JobRuns | Free | GpuLayout | NodeEmpty | NodeExists | NodeAbsent, Field(discriminator="kind")
]
