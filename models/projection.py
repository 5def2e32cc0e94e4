"""Projection: what a plan expects of later slots - starts, promises, and what becomes of deadlines."""

from __future__ import annotations

from enum import StrEnum
from operator import not_
from typing import Annotated

from pydantic import Field

from planner.models.placement import Replica
from planner.models.plan_part import PlanPart
from planner.models.reason import Reason
from planner.models.units import Name, Timestamp


class Waiting(PlanPart):
    """A job that waits, why, and when it is expected to start."""

    job: Name
    reason: Reason
    projected_start: Timestamp | None = None
    """None if it starts in no slot of the horizon, or the plan looks no further than this instant."""
    promised: bool = Field(default=False, exclude_if=not_)
    """The start is held for the job: later plans keep it."""
    earlier_promise: Timestamp | None = Field(default=None, exclude_if=not_)
    """The start it was promised before this plan."""
    promise_changed: str = Field(default="", exclude_if=not_)
    """Why that promise is put off or withdrawn, in words; empty if it is not."""
    waits_for: str = Field(default="", exclude_if=not_)
    """What its projected start waits for, in words that follow "waits": `until train-a ends`."""


class PlannedStart(PlanPart):
    """A start in a later slot, with the places for it."""

    job: Name
    slot: Annotated[int, Field(ge=1)]
    start: Timestamp
    """The beginning of the slot."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    promised: bool = True
    """The places are held for it from now on."""


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
    deadline: Timestamp
    hard: bool = False
    projected_finish: Timestamp | None = None
    """None if it is not planned to start within the horizon."""
    state: DeadlineState
