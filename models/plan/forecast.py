"""Projection: what a plan expects of later slots - starts, promises, and what becomes of deadlines."""

from __future__ import annotations

from enum import StrEnum
from operator import not_
from typing import Annotated

from pydantic import Field

from gpuplan.models.placement import Replica
from gpuplan.models.plan.base import PlanPart
from gpuplan.models.plan.reason import Reason
from gpuplan.models.units import Name, Seconds, Timestamp


class Waiting(PlanPart):
    """A job that waits, why, and when it is expected to start."""

    job: Name
    """Job that waits."""
    reason: Reason
    """Why it waits."""
    projected_start: Timestamp | None = None
    """
    When it is expected to start; null if it starts in no slot of the horizon, or the plan looks no
    further than this instant.
    """
    promised: bool = Field(default=False, exclude_if=not_)
    """True: the start is held for the job, and later plans keep it."""
    earlier_promise: Timestamp | None = Field(default=None, exclude_if=not_)
    """The start it was promised before this plan."""
    promise_changed: str = Field(default="", exclude_if=not_)
    """Why that promise is put off or withdrawn, in words; empty if it is not."""
    waits_for: str = Field(default="", exclude_if=not_)
    """What its projected start waits for, in words that follow "waits": `until train-a ends`."""
    remaining: Seconds | None = Field(default=None, exclude_if=not_)
    """From its next start to its end on the fastest GPU model it may use; of jobs that ran before."""


class PlannedStart(PlanPart):
    """A start in a later slot, with the places for it."""

    job: Name
    """Job that starts later."""
    slot: Annotated[int, Field(ge=1)]
    """Time slot of its start."""
    start: Timestamp
    """Beginning of the slot."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Places planned for it."""
    promised: bool = True
    """True: the places are held for it from now on."""


class DeadlineState(StrEnum):
    """What becomes of a deadline."""

    MET = "met"
    CRITICAL = "critical"
    """Met as planned, though the job could wait for less than half its duration."""
    LATE = "late"
    IMPOSSIBLE = "impossible"
    """It cannot be met any more, whatever the plan."""


class DeadlineOutlook(PlanPart):
    """One job with a deadline, and when it is expected to complete."""

    job: Name
    """Job with a deadline."""
    deadline: Timestamp
    """Its deadline."""
    hard: bool = False
    """True: it is of no use after its deadline."""
    projected_finish: Timestamp | None = None
    """When it is expected to complete; null if it is not planned to start within the horizon."""
    state: DeadlineState
    """What becomes of the deadline."""
