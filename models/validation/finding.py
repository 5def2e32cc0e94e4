"""Finding: what a plan found damaged, and what becomes of it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpuplan.models.plan.base import PlanPart
from gpuplan.models.units import Name
from gpuplan.models.validation.base import DamageKind


class FindingOutcome(StrEnum):
    """What becomes of what is damaged."""

    RESTARTED = "restarted"
    """The job gives up its places and starts in this plan, all its replicas at once."""
    WAITING = "waiting"
    """The job gives up its places and waits again."""
    CONTINUED = "continued"
    """The elastic job goes on with the replicas that are left."""
    COMPLETED = "completed"
    """The elastic job goes on with the replicas that are left, and gets new ones in this plan."""
    LEFT = "left"
    """Nothing is done: the job may not be interrupted, or no job is concerned."""


class Finding(PlanPart):
    """One job, node, rack or reservation that is damaged: planning went on without what is lost."""

    subject: str
    """What is damaged, such as `job train-a` or `node n3`."""
    job: Name | None = Field(default=None, exclude_if=lambda value: value is None)
    """The job, if the subject is one that runs."""
    kinds: tuple[DamageKind, ...]
    """What happened, each kind once."""
    text: str
    """What happened in words, for people."""
    outcome: FindingOutcome
    """What becomes of it."""
