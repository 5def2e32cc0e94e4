"""State of a node or a queue once a plan is applied: what jobs hold, and why no further one starts."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import Count, Mib, Milli, Name, Timestamp


class QueueQuotaUse(Noun):
    """One quota of a queue; usage includes all queues below it."""

    gpu_model: str
    """Empty for all models together."""
    nominal_milli: Milli = Field(alias="nominal")
    """The queue's own nominal quota."""
    limit_milli: Milli | None = Field(alias="limit")
    """The most it may use; None means no limit."""
    used_milli: Milli = Field(alias="used")
    borrowed_milli: Milli = Field(alias="borrowed")
    """Part of `used` beyond the quota of the queue and the queues below it."""
    unused_milli: Milli = Field(alias="unused")
    """Unused part of that quota; other queues may have borrowed it."""
    guarantee_milli: Milli | None = Field(default=None, alias="guarantee")
    missing_milli: Milli = Field(default=0, alias="missing")
    """Part of the guarantee that the queue's jobs ask for and do not get."""


class WaitingFor(Noun):
    """Jobs of a queue that wait for one reason."""

    code: ReasonCode
    jobs: Count
    gpu_milli: Milli = Field(alias="gpus")
    """Sum of their minimum requests."""


class Reclaimable(Noun):
    """A running job that may be preempted to reclaim quota for this queue, whatever its priority."""

    job: Name
    queue: Name
    gpu_milli: Milli = Field(alias="gpus")


class QueueExplanation(Noun):
    """Explanation of one queue of a plan."""

    plan_id: str
    """Id of the plan."""
    epoch: Timestamp
    """The instant that the plan is for."""
    queue: Name
    """Name of the queue."""
    parent: Name | None
    """The queue above it; None at the top."""
    children: tuple[Name, ...]
    """The queues directly below it."""
    quotas: tuple[QueueQuotaUse, ...]
    """What it may hold and holds: over all GPU models, then of each that has a quota of its own."""
    running: Count
    """Jobs of the queue and of the queues below it; the fields that follow count the same way."""
    started: Count
    """Running jobs that the plan starts."""
    waiting: tuple[WaitingFor, ...] = ()
    """Most jobs first."""
    guarantee_note: str = ""
    """Why the guarantee is not met; empty if it is met."""
    may_be_reclaimed: bool = False
    """
    True if the queue holds more than its nominal quota and more than its guarantee.

    Queues below what they are entitled to may then reclaim the excess, whatever the priorities.
    """
    reclaimable: tuple[Reclaimable, ...] = ()
    """The first few, by name."""
    reclaimable_in_all: Count = 0
    """How many such jobs there are."""
    one_more: Name | None = None
    """First job in the waiting order that would start with one more GPU of quota; None if none would."""
    one_more_points: int | None = None
    """What that job would bring, in objective points."""
    one_more_tried: Count = 0
    """Number of jobs tried: the first that wait for quota; 0 for a queue without a quota of its own."""


class GpuHolder(Noun):
    """A job on one GPU."""

    job: Name
    holds: str
    """`1 GPU`, `0.46 GPU`, or a MIG profile."""


class GpuUse(Noun):
    """One GPU of a node."""

    index: Count
    healthy: bool
    fault: str = ""
    """What makes it unhealthy; empty if it is healthy or the cause is unknown."""
    layout: str | None
    """MIG layout in words; None if the GPU is not in MIG mode."""
    holders: tuple[GpuHolder, ...]
    """Sorted by name."""
    utilization: Count | None = None
    """Measured utilization in percent; None if unknown."""
    memory_mib: Mib | None = None
    """Memory measured to be in use; None if unknown."""
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
