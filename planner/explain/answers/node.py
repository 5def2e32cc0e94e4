"""How a node stands once a plan is carried out: who holds what of it, and why nobody starts on the rest."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Mib, Milli, Name, Timestamp


class GpuHolder(Noun):
    """A job on one GPU."""

    job: Name
    holds: str
    """`1 GPU`, `0.46 GPU`, or a MIG profile."""


class GpuUse(Noun):
    """One GPU of a node."""

    index: Count
    healthy: bool
    layout: str | None
    """Of a GPU in MIG mode, in words."""
    holders: tuple[GpuHolder, ...]
    """By name."""
    free_milli: Milli = Field(alias="free")
    """0 where it is unhealthy or in MIG mode."""


class NodeTenant(Noun):
    """A job on a node."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    replicas: Count
    """On this node."""
    starts: bool
    """By this plan."""
    ends_at: Timestamp
    """As expected."""


class NodeBooking(Noun):
    """A later start that is planned on a node."""

    job: Name
    starts_at: Timestamp
    promised: bool


class NodeClosure(Noun):
    """A window in which a node is closed to most or all jobs."""

    reservation: Name
    begins_at: Timestamp
    ends_at: Timestamp


class Stranded(Noun):
    """Why waiting jobs that may use a node do not start on what is free of it."""

    why: str
    jobs: Count
    example: Name


class NodeExplanation(Noun):
    """One node of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    node: Name
    """Name of the node."""
    size: str
    """`8 × H100-80GB`."""
    state: tuple[str, ...]
    """What is out of the ordinary: `cordoned`, `not ready` and such."""
    pool: Name | None
    """Pool that it belongs to; None if it is in none."""
    place: str
    """Region, zone, rack and island, as far as they are known."""
    price_per_hour: float
    """In the cluster's currency."""
    gpus: tuple[GpuUse, ...]
    """By index."""
    free_cpu_milli: Milli = Field(alias="free_cpus")
    """CPU cores free after the plan, in thousandths."""
    cpu_milli: Milli = Field(alias="cpus")
    """CPU cores of the node, in thousandths."""
    free_memory_mib: Mib
    """Memory free after the plan, in MiB."""
    memory_mib: Mib
    """Memory of the node, in MiB."""
    tenants: tuple[NodeTenant, ...] = ()
    """The first to end first."""
    bookings: tuple[NodeBooking, ...] = ()
    """Later starts on the node."""
    closures: tuple[NodeClosure, ...] = ()
    """Windows in which it is closed to most or all jobs."""
    stranded: tuple[Stranded, ...] = ()
    """Most jobs first; nothing where no waiting job may use the node."""
