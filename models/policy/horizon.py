"""Horizon: the time slots that a plan looks ahead, and the starts that it promises to pending jobs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import MILLI, AtLeastOne, Milli, MinuteOrLonger, PositiveSeconds, Seconds


class BackfillMode(StrEnum):
    """Effect that backfilled jobs may have on promised starts."""

    CONSERVATIVE = "conservative"
    """None: every promise is kept."""
    AGGRESSIVE = "aggressive"
    """A promised start may be delayed by at most `max_delay`."""


class Backfill(Noun):
    """Promises to pending jobs, and the backfill ahead of them."""

    mode: BackfillMode = BackfillMode.CONSERVATIVE
    """Effect that jobs which start ahead of a promised start may have on it."""
    max_delay: Seconds = 0
    """Maximum delay of a promised start; only with mode `aggressive`."""
    depth: AtLeastOne | None = None
    """
    Number of pending jobs that hold a promise at a time, the first in order; absent means all, 1 is EASY
    backfilling.
    """
    kill: bool = False
    """True: a job that started ahead of a promise is killed when its expected duration is over."""
    starving: PositiveSeconds | None = 7 * 24 * 3600
    """
    Waiting time after which a job is promised the first possible start, before any other job. With one slot
    the nodes that first have room for it are reserved, for one job at a time. `null` means never.
    """

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> Backfill:
        if self.max_delay and self.mode is BackfillMode.CONSERVATIVE:
            raise ValueError("expected max_delay only with mode aggressive, found it with mode conservative")
        if self.mode is BackfillMode.AGGRESSIVE and not self.max_delay:
            raise ValueError("expected a max_delay with mode aggressive, found none")
        return self


class HorizonPolicy(Noun):
    """Time slots that a plan looks ahead; one slot is a plan for this instant only."""

    slots: Annotated[int, Field(strict=True, ge=1, le=96)] = 1
    """Number of time slots that a plan looks ahead; 1 is a plan for this instant only."""
    length: MinuteOrLonger = 3600
    """
    Length of a slot. Slots begin at multiples of it since 1970-01-01T00:00Z; the first is the rest of the
    current one.
    """
    earliness_milli: Annotated[Milli, Field(le=MILLI)] = Field(default=100, alias="earliness")
    """
    Fraction of its points that a job loses if it completes at the end of the horizon instead of at once.
    """
    backfill: Backfill = Field(default_factory=Backfill)
    """Promised starts, and the jobs that may start ahead of them."""


class DurationPolicy(Noun):
    """Expected duration of jobs that do not declare one, or run longer than declared."""

    percentile: Annotated[int, Field(strict=True, ge=1, le=100)] = 90
    """
    Percentile of the durations of similar finished jobs that is used: 50 is the median, 90 is rarely
    exceeded.
    """
    samples: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 3
    """Number of finished jobs needed to learn a duration."""
    overrun_milli: Milli = Field(default=250, alias="overrun")
    """
    A job that runs longer than expected is expected to continue for this fraction of the time it has run.
    """
