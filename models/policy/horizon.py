"""Horizon: how far a plan looks ahead, in slots, and what it promises to those who wait."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import MILLI, AtLeastOne, Milli, MinuteOrLonger, PositiveSeconds, Seconds


class BackfillMode(StrEnum):
    """What jobs that start in front of a promise may do to it."""

    CONSERVATIVE = "conservative"
    """Nothing: every promise is kept."""
    AGGRESSIVE = "aggressive"
    """Delay it by at most `max_delay`."""


class Backfill(Noun):
    """Promises to waiting jobs, and who may start in front of them."""

    mode: BackfillMode = BackfillMode.CONSERVATIVE
    """What jobs that start in front of a promised start may do to it."""
    max_delay: Seconds = 0
    """How much later than its promised start a job may start; only with mode `aggressive`."""
    depth: AtLeastOne | None = None
    """
    Waiting jobs that hold a promise at a time, the first in order; absent is all, 1 is EASY backfilling.
    """
    kill: bool = False
    """True: a job that started in front of a promise is killed when its expected time is over."""
    starving: PositiveSeconds | None = 7 * 24 * 3600
    """
    Waiting time after which a job is promised the first start that there is, before any other job. With one
    slot the nodes on which it has room first are held for it, one job at a time. `null` is never.
    """

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> Backfill:
        if self.max_delay and self.mode is BackfillMode.CONSERVATIVE:
            raise ValueError("expected max_delay only with mode aggressive, found it with mode conservative")
        if self.mode is BackfillMode.AGGRESSIVE and not self.max_delay:
            raise ValueError("expected a max_delay with mode aggressive, found none")
        return self


class HorizonPolicy(Noun):
    """Slots that a plan looks ahead; one slot is a plan of this instant alone."""

    slots: Annotated[int, Field(strict=True, ge=1, le=96)] = 1
    """Time slots that a plan looks ahead; 1 is a plan of this instant alone."""
    length: MinuteOrLonger = 3600
    """
    Length of a slot. Slots begin at multiples of it since 1970-01-01T00:00Z; the first is the rest of
    one.
    """
    earliness_milli: Annotated[Milli, Field(le=MILLI)] = Field(default=100, alias="earliness")
    """
    Part of its points that a job loses if it completes at the horizon's end instead of at once.
    """
    backfill: Backfill = Field(default_factory=Backfill)
    """Promised starts, and which jobs may start in front of them."""


class DurationPolicy(Noun):
    """How long jobs are expected to run that do not say so, or run longer than they said."""

    percentile: Annotated[int, Field(strict=True, ge=1, le=100)] = 90
    """
    Percentile of the durations of similar finished jobs that is expected: 50 is the median, 90 is rarely
    exceeded.
    """
    samples: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 3
    """Finished jobs that it takes to learn a duration."""
    overrun_milli: Milli = Field(default=250, alias="overrun")
    """
    A job that runs longer than expected is expected to go on for this part of the time it ran.
    """
