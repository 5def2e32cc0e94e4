"""Finding: damage found by a plan, and its outcome."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpuplan.models.plan.base import PlanBase
from gpuplan.models.units import Name
from gpuplan.models.validation.base import DamageKind


class FindingOutcome(StrEnum):
    """Outcome of a damage."""

    RESTARTED = "restarted"
    """The job gives up its places, and all its replicas start again in this plan."""
    WAITING = "waiting"
    """The job gives up its places and waits again."""
    CONTINUED = "continued"
    """The elastic job continues with its remaining replicas."""
    COMPLETED = "completed"
    """The elastic job continues with its remaining replicas, and gets new ones in this plan."""
    LEFT = "left"
    """Unchanged: the job may not be interrupted, or no job is affected."""


class DamageFinding(PlanBase):
    """A damaged job, node, rack or reservation; planning continued without what is lost."""

    subject: str
    """Damaged subject, such as `job train-a` or `node n3`."""
    job: Name | None = Field(default=None, exclude_if=lambda value: value is None)
    """The job, if the subject is a running job."""
    kinds: tuple[DamageKind, ...]
    """Types of damage, each once."""
    text: str
    """The damage in words, for people."""
    outcome: FindingOutcome
    """Outcome of the damage."""
