"""Promise: the start a waiting job was told, and the places held for it."""

from __future__ import annotations

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.placement import Replica
from gpuplan.models.units import Timestamp


class Promise(Noun):
    """What an earlier plan promised a waiting job."""

    start: Timestamp
    """Promised start: the job starts no later than this, or than the policy's `max_delay` after it."""
    replicas: tuple[Replica, ...] = Field(min_length=1)
    """Places held for the job; which whole GPUs of a node it gets is settled when it starts."""
