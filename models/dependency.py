"""Dependency: what must have happened to other jobs before a job may start."""

from __future__ import annotations

from enum import StrEnum

from planner.models.base import Noun
from planner.models.units import Name, Timestamp


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
    kind: DependencyKind = DependencyKind.SUCCEEDED


class Outcome(StrEnum):
    """How a job ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"


class FinishedJob(Noun):
    """A job that is over: others may wait for it, and it teaches how long the like of it take."""

    name: Name
    queue: Name
    user: Name = "unknown"
    outcome: Outcome = Outcome.SUCCEEDED
    started_at: Timestamp
    ended_at: Timestamp
