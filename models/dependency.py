"""Other jobs that a job waits for, and its own failures, after which it is tried again."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import AtLeastOne, Count, Name, Seconds, Timestamp

_MOST_DOUBLINGS: Final = 32
"""After so many doublings any back-off is longer than the longest duration of a document."""


class RetryWhen(StrEnum):
    """After which ends a job is tried again (Kubernetes' restart policies)."""

    NEVER = "never"
    """After none."""
    ON_FAILURE = "on-failure"
    """After a failure, with the progress of its last checkpoint."""
    ALWAYS = "always"
    """After every end; after a success it begins anew."""


class Retry(Noun):
    """Retries of a job, with Kubernetes' defaults: six retries, 10 s of back-off, doubled up to 6 minutes."""

    when: RetryWhen = RetryWhen.ON_FAILURE
    """After which ends the job is tried again."""
    most: Count = Field(default=6, alias="max")
    """Number of retries after failures; a success begins a new count."""
    backoff: Seconds = 10
    """Time from the first failure to the earliest next start; it doubles with each further failure."""
    longest_backoff: Seconds = Field(default=360, alias="max_backoff")
    """Longest such time; if `backoff` is longer, that."""

    @property
    def retries(self) -> int:
        """Number of retries after failures; with `never` none."""
        return 0 if self.when is RetryWhen.NEVER else self.most

    def is_used_up(self, failures: int) -> bool:
        """True if a job that has failed so many times is not tried again."""
        return failures > self.retries

    def wait(self, failures: int) -> timedelta:
        """Time from the last of so many failures to the earliest next start."""
        if not failures:
            return timedelta(0)
        doubled = self.backoff << min(failures - 1, _MOST_DOUBLINGS)
        return timedelta(seconds=min(max(self.longest_backoff, self.backoff), doubled))


def latest(*instants: datetime | None) -> datetime | None:
    """The latest of some instants; None if there is none."""
    return max((each for each in instants if each is not None), default=None)


# Dependencies: jobs that are waited for, by what becomes of them.


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
