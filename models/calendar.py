"""
Calendar: recurring time spans, reservations and maintenance of nodes, and tariffs.

Recurring entries are expanded to plain spans in whole seconds after a given instant.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from croniter import CroniterBadDateError, croniter
from pydantic import AfterValidator, Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Label, Name, PositiveSeconds, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_OCCURRENCES: Final = 10_000
"""Limit on occurrences of a recurring span in one look-ahead: a week of a once-a-minute cron line."""

# Any instant: only whether there is a next one is of interest.
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)

Span: TypeAlias = tuple[int, int]
"""(first second, one past the last second) after the reference instant; a span may begin before it."""


def _cron(value: str) -> str:
    # croniter reads R as a random value, so the calendar would differ from call to call.
    random = "R" in re.split(r"[^A-Z]", value.upper())
    if len(value.split()) != 5 or random or not croniter.is_valid(value):
        raise ValueError(f"expected a cron expression of five fields such as '0 22 * * 1-5', found {value!r}")
    try:
        croniter(value, _LONG_AGO).get_next(datetime)
    except CroniterBadDateError:
        raise ValueError(f"expected a cron expression that some day meets, found {value!r}") from None
    return value


Cron: TypeAlias = Annotated[str, AfterValidator(_cron)]
"""Five fields: minute, hour, day of month, month, day of week; times are UTC."""


class Recurring(Noun):
    """A span of time: one `start`, or a `cron` line of starts, and a duration."""

    start: Timestamp | None = None
    """Beginning of a span that happens once."""
    cron: Cron | None = None
    """Beginnings of a span that recurs, as a cron expression of five fields in UTC."""
    duration: PositiveSeconds
    """Length of the span."""

    @model_validator(mode="after")
    def _one_way_to_begin(self) -> Recurring:
        if (self.start is None) == (self.cron is None):
            found = "neither" if self.start is None else "both"
            raise ValueError(f"expected one of start and cron, found {found}")
        return self

    def spans(self, now: datetime, until: int) -> Iterator[Span]:
        """Spans that are not over at `now` and begin within `until` seconds, in order."""
        if self.cron is None:
            begin = int((self.start - now).total_seconds()) if self.start else until
            if begin < until and begin + self.duration > 0:
                yield begin, begin + self.duration
            return
        times = croniter(self.cron, now - timedelta(seconds=self.duration))
        for _ in range(MOST_OCCURRENCES):
            begin = int((times.get_next(datetime) - now).total_seconds())
            if begin >= until:
                return
            if begin + self.duration > 0:
                yield begin, begin + self.duration


class ReservationKind(StrEnum):
    """Purpose of reserved nodes."""

    RESERVED = "reserved"
    """Only jobs of the owners may run."""
    MAINTENANCE = "maintenance"
    """No job may run."""


class Reservation(Recurring):
    """Nodes set aside for a time, given by name or as a number of matching nodes."""

    name: Name
    """Name of the reservation."""
    kind: ReservationKind = ReservationKind.RESERVED
    """Purpose of the reservation."""
    nodes: tuple[Name, ...] = ()
    """Names of the reserved nodes."""
    count: Count = 0
    """Number of nodes that the planner chooses, instead of names."""
    gpu_model: Name | None = None
    """Required GPU model of nodes that the planner chooses."""
    node_selector: dict[Name, Label] = Field(default_factory=dict)
    """Required labels of nodes that the planner chooses."""
    queues: tuple[Name, ...] = ()
    """Owners: jobs of these queues, and of those below them, may use the nodes."""
    users: tuple[Name, ...] = ()
    """Owners: jobs of these users may use the nodes."""
    job_labels: dict[Name, Label] = Field(default_factory=dict)
    """Owners: jobs that have all of these labels may use the nodes."""

    @model_validator(mode="after")
    def _names_or_count(self) -> Reservation:
        if bool(self.nodes) == bool(self.count):
            found = "both" if self.nodes else "neither"
            raise ValueError(f"expected one of nodes and count, found {found}")
        if self.nodes and (self.gpu_model or self.node_selector):
            raise ValueError("expected gpu_model and node_selector only with count, found them with nodes")
        owned = bool(self.queues or self.users or self.job_labels)
        if owned and self.kind is ReservationKind.MAINTENANCE:
            raise ValueError("expected no queues, users or job_labels with kind maintenance, found some")
        if not owned and self.kind is ReservationKind.RESERVED:
            raise ValueError("expected queues, users or job_labels that own the reservation, found none")
        return self


class Tariff(Recurring):
    """Price of a GPU-hour in some time spans, in addition to node prices; overlapping tariffs add up."""

    name: Name
    """Name of the tariff."""
    price_per_gpu_hour: Annotated[float, Field(gt=0, le=1e6)]
    """Price of a GPU-hour within the spans, in the cluster's currency."""
    gpu_models: tuple[Name, ...] = ()
    """GPU models that the tariff is for; empty is all."""
