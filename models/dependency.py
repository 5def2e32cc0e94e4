"""Dependency: what must have happened to other jobs before a job may start."""

from __future__ import annotations

from enum import StrEnum

from gpuplan.models.base import Noun
from gpuplan.models.units import AtLeastOne, Name, Timestamp


class DependencyKind(StrEnum):
    """What must have happened (Slurm's words in brackets)."""

    STARTED = "started"
    """It runs or ran (after)."""
    SUCCEEDED = "succeeded"
    """It ended well (afterok)."""
    COMPLETED = "completed"
    """It ended, well or not (afterany)."""
    CHECKPOINTED = "checkpointed"
    """It has saved a checkpoint, or ended well."""


class Dependency(Noun):
    """One job another one waits for."""

    job: Name
    """Job that this one waits for."""
    kind: DependencyKind = DependencyKind.SUCCEEDED
    """What must have happened to it."""


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class FinishedJob(Noun):
    """A job that is over: others may wait for it, and it teaches how long and how fast the like of it are."""

    name: Name
    """Name of the job."""
    queue: Name
    """Queue that it was in."""
    user: Name = "unknown"
    """User that submitted it."""
    outcome: Outcome = Outcome.SUCCEEDED
    """How it ended."""
    started_at: Timestamp
    """When it started."""
    ended_at: Timestamp
    """When it ended."""
    replicas: AtLeastOne | None = None
    """Replicas that it ran with from start to end; absent teaches nothing about how its like scale."""
    gpu_model: Name | None = None
    """GPU model that it ran on."""
