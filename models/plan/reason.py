"""Reason for an action, or for a job to wait; and the base class of all parts of a plan file."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field

from gpuplan.models.base import Noun

# The base class of everything that occurs only in plan files.


class PlanBase(Noun):
    """Part of a plan file; readers ignore keys that a newer minor version added."""

    model_config = ConfigDict(extra="ignore")


# Reason for an action, or for a job to wait; for people.


class ReasonCode(StrEnum):
    """Reason for an action, or for a job to wait; of the latter the most severe come first."""

    ADMITTED = "Admitted"
    MAKES_ROOM = "MakesRoom"
    """Preempted, shrunk or migrated to make room for another job."""
    RESIZED = "Resized"
    """Grows into free resources."""
    MOVED = "Moved"
    """Migrated to a better place, or so that its node can be removed or drained."""
    LAYOUT = "Layout"
    """Creates MIG instances that the plan's jobs need."""
    DEMAND = "Demand"
    """Adds a node that pending jobs need."""
    IDLE = "Idle"
    """Removes a node that no job needs."""
    DRAINED = "Drained"
    """Leaves a node that is to be drained or closed by a window, or confirms that all jobs have left."""
    DAMAGED = "Damaged"
    """Releases lost places."""
    ROLLED_BACK = "RolledBack"
    """Undoes what an earlier plan did."""
    UNCHANGED = "Unchanged"
    HELD = "Held"
    RETRIES_USED_UP = "RetriesUsedUp"
    """It has failed more often than it may be tried again."""
    PREEMPTED = "Preempted"
    """Preempted by this plan; it waits for its next start."""
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    """Too few of the jobs that it depends on can still meet the condition."""
    DEADLINE_IMPOSSIBLE = "DeadlineImpossible"
    """It would miss its hard deadline even with its earliest possible start."""
    NO_MATCHING_NODE = "NoMatchingNode"
    """No node is eligible for even one replica."""
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    """The job alone exceeds its queue's limit."""
    DEPENDENCY = "Dependency"
    """Jobs that it depends on do not meet the condition yet."""
    BEGIN_TIME = "BeginTime"
    """Its earliest start is later, or data that it reads is not available yet."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    RESOURCES = "Resources"
    """Too little is free on the eligible nodes."""
    FRAGMENTED = "Fragmented"
    """Enough is free in total, but not on single nodes."""
    LAYOUT_BLOCKED = "LayoutBlocked"
    """No legal MIG layout has room for its instances beside those in use."""
    DOMAIN = "Domain"
    """No single domain of the required level has room for all its replicas."""
    RESERVED = "Reserved"
    """It fits only on nodes that are reserved or in maintenance before it would end."""
    CO_START = "CoStart"
    """It would fit, but another job of its co-start group does not start."""
    NOT_CHOSEN = "NotChosen"
    """It would fit, but its place has more value for other jobs, or costs more than the job's value."""


class Reason(PlanBase):
    """A reason for people; code that acts never reads it."""

    code: ReasonCode
    """The reason as a code, for programs."""
    text: str
    """The reason in a sentence, for people."""
    numbers: dict[str, int | float | str] = Field(default_factory=dict)
    """Numbers in the sentence, by name."""
