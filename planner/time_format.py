"""Text format of times: the time of day, with the date if it is another day."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def format_time(moment: datetime, now: datetime) -> str:
    """`14:00`, or `2026-11-21 02:00` on another day than `now`; UTC, with seconds only if not 0."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    time = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    return time if moment.date() == now.date() else f"{moment.date()} {time}"
