"""EpochRecord: what became of one epoch of a periodic run, as the history keeps it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Timestamp


class EpochOutcome(StrEnum):
    """How an epoch ended."""

    PLANNED = "planned"
    """The plan is saved; this run applies none."""
    UNCHANGED = "unchanged"
    """The plan changes nothing."""
    AWAITS_APPROVAL = "awaits_approval"
    """The policy leaves this plan to a person."""
    APPLIED = "applied"
    RESUMED = "resumed"
    """What an earlier run left undone of its last plan is done."""
    STOPPED = "stopped"
    """The run was told to end; what is left of an apply can be resumed."""
    STALE = "stale"
    """The cluster changed between snapshot and apply; nothing was done."""
    PARTLY_APPLIED = "partly_applied"
    """An action failed; those before it are done."""
    FAILED = "failed"
    """There is no plan, or nothing of it could be done."""


TROUBLE = frozenset({EpochOutcome.STALE, EpochOutcome.PARTLY_APPLIED, EpochOutcome.FAILED})
"""Outcomes after which the next epoch comes sooner, and then later and later."""


class KnobChange(Noun):
    """A knob of the policy that has another value than in the epoch before."""

    knob: str
    """Its path, such as `disruption.preempt`."""
    old: Any
    new: Any


class EpochRecord(Noun):
    """One epoch; what it did not come to is None, empty or 0."""

    number: Count
    """1, 2, 3, … over all runs of one history."""
    began_at: Timestamp
    ended_at: Timestamp
    """By the clock of the machine that plans."""
    outcome: EpochOutcome
    error: str = ""
    """What went wrong, and the next step."""
    taken_at: Timestamp | None = None
    """The instant of the snapshot, by the cluster's clock."""
    snapshot: str | None = None
    """Fingerprint."""
    policy: str | None = None
    """Fingerprint of the policy in force."""
    policy_changes: tuple[KnobChange, ...] = ()
    policy_error: str = ""
    """Why the policy file could not be read; the last good policy is in force then."""
    plan_id: str | None = None
    status: str | None = None
    solver: str | None = None
    objective: int | None = None
    bound: int | None = None
    gap: float | None = None
    seconds: float | None = None
    """Of planning."""
    actions: dict[str, Count] = Field(default_factory=dict)
    """Actions of the plan by type, those that change nothing included."""
    done: Count = 0
    """Steps of the plan that this epoch carried out; recording its promises is one of them."""
    done_before: Count = 0
    """Those that were carried out before it."""
    undone: Count = 0
    """Those that are not carried out, of a plan of which some were to be."""
    skipped_ticks: Count = 0
    """Ticks that passed during this epoch because it took too long."""
