"""Dependency: the condition on other jobs that must hold before a job may start."""

from __future__ import annotations

from enum import StrEnum

from gpuplan.models.base import Noun
from gpuplan.models.units import AtLeastOne, Name, Timestamp


class DependencyKind(StrEnum):
    """Condition on the other job (Slurm's terms in brackets)."""

    STARTED = "started"
    """It has started (after)."""
    SUCCEEDED = "succeeded"
    """It has succeeded (afterok)."""
    COMPLETED = "completed"
    """It has ended, successfully or not (afterany)."""
    CHECKPOINTED = "checkpointed"
    """It has saved a checkpoint, or has succeeded."""


class Dependency(Noun):
    """One job that another job waits for."""

    job: Name
    """Job that this one waits for."""
    kind: DependencyKind = DependencyKind.SUCCEEDED
    """Condition that the job must meet."""


class JobOutcome(StrEnum):
    """Outcome of an ended job."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class FinishedJob(Noun):
    """A job that has ended: dependencies refer to it, and estimates of similar jobs learn from it."""

    name: Name
    """Name of the job."""
    queue: Name
    """Queue that it was in."""
    user: Name = "unknown"
    """User that submitted it."""
    outcome: JobOutcome = JobOutcome.SUCCEEDED
    """Its outcome."""
    started_at: Timestamp
    """Time of its start."""
    ended_at: Timestamp
    """Time of its end."""
    replicas: AtLeastOne | None = None
    """Constant number of replicas during the run; absent: not used to learn how similar jobs scale."""
    gpu_model: Name | None = None
    """GPU model that it ran on."""
