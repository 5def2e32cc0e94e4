"""How a queue stands once a plan is carried out: what it may hold and holds, and who waits in it for what."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.units import Count, Milli, Name, Timestamp


class QuotaUse(Noun):
    """One quota of a queue, with all queues below it."""

    gpu_model: str
    """Empty for all models together."""
    nominal_milli: Milli = Field(alias="nominal")
    """Its own."""
    limit_milli: Milli | None = Field(alias="limit")
    """What it may use at most; None is no limit."""
    used_milli: Milli = Field(alias="used")
    borrowed_milli: Milli = Field(alias="borrowed")
    """Of that, beyond the quota of the queue and those below it."""
    unused_milli: Milli = Field(alias="unused")
    """Of that quota; others may have borrowed it."""
    guarantee_milli: Milli | None = Field(default=None, alias="guarantee")
    missing_milli: Milli = Field(default=0, alias="missing")
    """Of its guarantee, though it asks for it."""


class WaitingFor(Noun):
    """Jobs of a queue that wait for one reason."""

    code: ReasonCode
    jobs: Count
    gpu_milli: Milli = Field(alias="gpus")
    """What they ask for together at least."""


class Reclaimable(Noun):
    """A running job that may be stopped for this queue whatever its priority, as its own queue borrows."""

    job: Name
    queue: Name
    gpu_milli: Milli = Field(alias="gpus")


class QueueExplanation(Noun):
    """One queue of a plan."""

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
    quotas: tuple[QuotaUse, ...]
    """What it may hold and holds: over all GPU models, then of each that has a quota of its own."""
    running: Count
    """Jobs of the queue and of those below it, as all that follows."""
    started: Count
    """Of these, by the plan."""
    waiting: tuple[WaitingFor, ...] = ()
    """Most jobs first."""
    guarantee_note: str = ""
    """Why the guarantee is not met, if it is not."""
    may_be_reclaimed: bool = False
    """
    It holds more than its own quota and its guarantee: queues below theirs may take that back, whatever the
    priorities.
    """
    reclaimable: tuple[Reclaimable, ...] = ()
    """The first, by name."""
    reclaimable_in_all: Count = 0
    """How many such jobs there are."""
    one_more: Name | None = None
    """The job that would start if the queue had a GPU of quota more, the worthiest; None if none would."""
    one_more_points: int | None = None
    """What that job would bring, in objective points."""
    one_more_tried: Count = 0
    """Jobs that it was tried for, the worthiest that wait for quota; 0 for a queue without one of its own."""
