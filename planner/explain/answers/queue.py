"""State of a queue once a plan is applied: its quotas, what it holds, and what its jobs wait for."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import Count, Milli, Name, Timestamp


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
