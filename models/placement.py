"""Placement: where the replicas of one job are, down to GPU indices."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field

from planner.models.base import Noun
from planner.models.mig import profile_milli
from planner.models.units import MILLI, Count, Mib, Milli, Name


class GpuShare(Noun):
    """A whole GPU (1000) or a share of one, in thousandths."""

    index: Annotated[int, Field(ge=0, le=127)]
    milli: Annotated[int, Field(strict=True, ge=1, le=MILLI)]


class MigSlice(Noun):
    """A MIG instance on one GPU; `start` is its first memory slice."""

    index: Annotated[int, Field(ge=0, le=127)]
    profile: Name
    start: Annotated[int, Field(ge=0, le=7)]


class Replica(Noun):
    """One replica of a job on one node, with everything it holds there."""

    node: Name
    gpus: tuple[GpuShare | MigSlice, ...] = ()
    cpu_milli: Milli = Field(default=0, alias="cpus")
    memory_mib: Mib = 0
    disk_mib: Mib = 0
    resources: dict[Name, Count] = Field(default_factory=dict)

    @cached_property
    def quota_milli(self) -> int:
        """Thousandths of GPUs that count against quotas; a MIG slice by its compute slices."""
        return sum(
            held.milli if isinstance(held, GpuShare) else profile_milli(held.profile) for held in self.gpus
        )


class Placement(Noun):
    """All replicas of one job in one slot."""

    job: Name
    slot: Count = 0
    replicas: tuple[Replica, ...] = Field(min_length=1)
