"""Reason: why an action is in a plan, or why a job waits; for people."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpuplan.models.plan.base import PlanPart


class ReasonCode(StrEnum):
    """Why an action is in the plan, or why a job waits; most severe first among the waiting ones."""

    ADMITTED = "Admitted"
    MAKES_ROOM = "MakesRoom"
    """Stopped, shrunk or moved so that somebody else fits."""
    RESIZED = "Resized"
    """Grows into what is free."""
    MOVED = "Moved"
    """Moved for its own good, or so that its node can be removed or drained."""
    LAYOUT = "Layout"
    """MIG instances that the plan's jobs need."""
    DEMAND = "Demand"
    """A node that waiting jobs need."""
    IDLE = "Idle"
    """A node that nobody needs."""
    DRAINED = "Drained"
    """Leaves a node that is to be drained or closed by a window, or confirms that all have left."""
    DAMAGED = "Damaged"
    """Gives up places that no longer hold."""
    UNCHANGED = "Unchanged"
    HELD = "Held"
    PREEMPTED = "Preempted"
    """Stopped by this plan; it waits for its next chance."""
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    """Too few of the jobs it depends on can still become what it waits for."""
    DEADLINE_IMPOSSIBLE = "DeadlineImpossible"
    """It would miss its hard deadline even if it started as early as it may."""
    NO_MATCHING_NODE = "NoMatchingNode"
    """No node could ever run one replica."""
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    """The job alone is larger than its queue's limit."""
    DEPENDENCY = "Dependency"
    """Jobs it depends on are not what it waits for yet."""
    BEGIN_TIME = "BeginTime"
    """It may not start yet, or data that it reads is not there yet."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    RESOURCES = "Resources"
    """Too little is free on the nodes that match."""
    FRAGMENTED = "Fragmented"
    """Enough is free in total, but not where one replica needs it."""
    LAYOUT_BLOCKED = "LayoutBlocked"
    """No legal MIG layout has room for its instances beside those in use."""
    DOMAIN = "Domain"
    """No single domain of the required level has room for all its replicas."""
    RESERVED = "Reserved"
    """It has room only on nodes that are reserved, or in maintenance, before it would be done."""
    CO_START = "CoStart"
    """It would fit, but another job of its group does not start."""
    NOT_CHOSEN = "NotChosen"
    """It would fit, but its place is worth more to others, or costs more than it brings."""


class Reason(PlanPart):
    """Why, for people; never read by code that acts."""

    code: ReasonCode
    """The reason as one word, for programs."""
    text: str
    """The reason in a sentence, for people."""
    numbers: dict[str, int | float | str] = Field(default_factory=dict)
    """Figures of the sentence by name."""
