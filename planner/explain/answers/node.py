"""State of a node once a plan is applied: what each job holds, and why no waiting job starts on the rest."""

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
    """MIG layout in words; None if the GPU is not in MIG mode."""
    holders: tuple[GpuHolder, ...]
    """Sorted by name."""
    free_milli: Milli = Field(alias="free")
    """0 if the GPU is unhealthy or in MIG mode."""


class NodeTenant(Noun):
    """A job on a node."""

    job: Name
    queue: Name
    user: Name
    priority: Count
    replicas: Count
    """Replicas on this node."""
    starts: bool
    """True if this plan starts it."""
    ends_at: Timestamp
    """Expected end."""


class NodeBooking(Noun):
    """A later start that the plan places on a node."""

    job: Name
    starts_at: Timestamp
    promised: bool


class NodeClosure(Noun):
    """A window in which a node is closed to most or all jobs."""

    reservation: Name
    begins_at: Timestamp
    ends_at: Timestamp


class Stranded(Noun):
    """A reason why waiting jobs that may use a node do not start on its free capacity."""

    why: str
    jobs: Count
    example: Name


class NodeExplanation(Noun):
    """Explanation of one node of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    node: Name
    """Name of the node."""
    size: str
    """`8 × H100-80GB`."""
    state: tuple[str, ...]
    """Exceptional states: `cordoned`, `not ready` and similar."""
    pool: Name | None
    """Pool that it belongs to; None if it is in none."""
    place: str
    """Region, zone, rack and NVLink island, as far as they are known."""
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
    """Sorted by expected end."""
    bookings: tuple[NodeBooking, ...] = ()
    """Later starts on the node."""
    closures: tuple[NodeClosure, ...] = ()
    """Windows in which it is closed to most or all jobs."""
    stranded: tuple[Stranded, ...] = ()
    """Most jobs first; empty if no waiting job may use the node."""
