"""EpochRecord: the outcome of one epoch of a periodic run, as stored in the history."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Timestamp


class EpochOutcome(StrEnum):
    """Outcome of an epoch."""

    PLANNED = "planned"
    """The plan is saved; this run does not apply plans."""
    UNCHANGED = "unchanged"
    """The plan changes nothing."""
    AWAITS_APPROVAL = "awaits_approval"
    """The policy requires an operator's approval of this plan."""
    APPLIED = "applied"
    RESUMED = "resumed"
    """The rest of an earlier run's last plan is done."""
    STOPPED = "stopped"
    """The run was told to stop; the rest of an apply can be resumed."""
    STALE = "stale"
    """The cluster changed between snapshot and apply; nothing was done."""
    PARTLY_APPLIED = "partly_applied"
    """An action failed; the actions before it are done."""
    FAILED = "failed"
    """There is no plan, or no action of it could be done."""


TROUBLE = frozenset({EpochOutcome.STALE, EpochOutcome.PARTLY_APPLIED, EpochOutcome.FAILED})
"""Outcomes after which the next epoch is a retry with exponential backoff."""


class KnobChange(Noun):
    """A knob of the policy with a value that differs from the epoch before."""

    knob: str
    """Path, such as `disruption.preempt`."""
    old: Any
    new: Any


class EpochRecord(Noun):
    """One epoch; fields of steps that it did not reach are None, empty or 0."""

    number: Count
    """1, 2, 3, …, counted over all runs of one history."""
    began_at: Timestamp
    ended_at: Timestamp
    """By the planner's clock, as is `began_at`."""
    outcome: EpochOutcome
    error: str = ""
    """Error message, with the next step."""
    taken_at: Timestamp | None = None
    """Time of the snapshot, by the cluster's clock."""
    snapshot: str | None = None
    """Fingerprint of the snapshot."""
    policy: str | None = None
    """Fingerprint of the policy in force."""
    policy_changes: tuple[KnobChange, ...] = ()
    policy_error: str = ""
    """Why the policy file could not be read; the last good policy is then in force."""
    plan_id: str | None = None
    status: str | None = None
    solver: str | None = None
    objective: int | None = None
    bound: int | None = None
    gap: float | None = None
    seconds: float | None = None
    """Duration of planning."""
    actions: dict[str, Count] = Field(default_factory=dict)
    """Number of the plan's actions by type, including those that change nothing."""
    done: Count = 0
    """Steps of the plan that this epoch carried out; recording the promises is one step."""
    done_before: Count = 0
    """Steps that were carried out before this epoch."""
    undone: Count = 0
    """Steps that are not carried out."""
    skipped_ticks: Count = 0
    """Ticks that were skipped because this epoch took too long."""
