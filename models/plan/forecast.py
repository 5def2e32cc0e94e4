"""Forecast: what a plan expects of later slots - starts, promises, and the outlook of deadlines."""

from __future__ import annotations

from enum import StrEnum
from operator import not_
from typing import Annotated

from pydantic import Field

from gpuplan.models.placement import Replica
from gpuplan.models.plan.reason import PlanBase, Reason
from gpuplan.models.units import Name, Seconds, Timestamp


class Waiting(PlanBase):
    """A pending job, the reason why it waits, and its projected start."""

    job: Name
    """Pending job."""
    reason: Reason
    """Reason why it waits."""
    projected_start: Timestamp | None = None
    """
    Expected start; null if the job starts in no slot of the horizon, or the horizon is a single slot.
    """
    promised: bool = Field(default=False, exclude_if=not_)
    """True: the start is promised to the job, and later plans keep it."""
    earlier_promise: Timestamp | None = Field(default=None, exclude_if=not_)
    """The start that was promised before this plan."""
    promise_changed: str = Field(default="", exclude_if=not_)
    """Reason in words why that promise is postponed or withdrawn; empty if it is not."""
    waits_for: str = Field(default="", exclude_if=not_)
    """What its projected start depends on, in words that follow "waits": `until train-a ends`."""
    remaining: Seconds | None = Field(default=None, exclude_if=not_)
    """Time from its next start to its end on its fastest allowed GPU model; only for jobs that ran before."""


class PlannedStart(PlanBase):
    """A start in a later slot, with the places for it."""

    job: Name
    """Job that starts later."""
    slot: Annotated[int, Field(ge=1)]
    """Time slot of its start."""
    start: Timestamp
    """Beginning of the slot."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Planned places."""
    promised: bool = True
    """True: the places are reserved for it from now on."""


class DeadlineState(StrEnum):
    """Outlook of a deadline."""

    MET = "met"
    CRITICAL = "critical"
    """The plan meets it, but the job could wait for less than half its duration."""
    LATE = "late"
    IMPOSSIBLE = "impossible"
    """No plan can meet it any more."""


class DeadlineOutlook(PlanBase):
    """Expected completion of a job with a deadline."""

    job: Name
    """Job with a deadline."""
    deadline: Timestamp
    """Its deadline."""
    hard: bool = False
    """True: the job has no value after its deadline."""
    projected_finish: Timestamp | None = None
    """Expected completion; null if the job is not planned to start within the horizon."""
    state: DeadlineState
    """Outlook of the deadline."""
