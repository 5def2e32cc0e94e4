"""Promise: the promised start of a pending job, and the places reserved for it."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.placement import Replica
from gpuplan.models.units import Timestamp


class Promise(Noun):
    """A promise of an earlier plan to a pending job."""

    start: Timestamp
    """Promised start: the job starts at this time at the latest, or by the policy's `max_delay` later."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Places reserved for the job; the indices of whole GPUs are fixed only when it starts."""
