"""Rollback: what a plan that undoes an earlier one takes back, and what of it cannot be undone."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from gpuplan.models.cluster import MigInstance
from gpuplan.models.plan.reason import PlanBase
from gpuplan.models.plan.violation import Rule
from gpuplan.models.units import Count, Name


class StaysCode(StrEnum):
    """Why a change stays."""

    FINISHED = "Finished"
    """The job has ended, or is gone."""
    CHANGED = "Changed"
    """It was changed again since."""
    LOST = "Lost"
    """The places where it ran are lost."""
    WORK_LOST = "WorkLost"
    """Work since the last checkpoint is lost, also if the job goes back."""
    TAKEN = "Taken"
    """What the job held before is held by a job that the plan did not place there."""
    IN_USE = "InUse"
    """A job uses what the change added."""
    STARTED = "Started"
    """The job works, and nothing that is undone needs its place."""
    RULE = "Rule"
    """The verifier forbids to undo it."""
    INCAPABLE = "Incapable"
    """No plan can do the opposite."""


class StayingChange(PlanBase):
    """A change of the earlier plan, or a part of it, that the rollback does not undo."""

    action: Name
    """Id of the action in the earlier plan."""
    subject: str
    """Subject of the action, such as `job train-a` or `node n0 gpu 3`."""
    code: StaysCode
    """The reason as a code, for programs."""
    rule: Rule | None = Field(default=None, exclude_if=lambda rule: rule is None)
    """The rule that forbids to undo it; only with code `Rule`."""
    text: str
    """The reason in a sentence, for people."""


class GpuLayoutBack(PlanBase):
    """A MIG layout that is put back."""

    node: Name
    """Node that has the GPU."""
    gpu: Count
    """Index of the GPU on its node."""
    instances: tuple[MigInstance, ...] = ()
    """MIG instances that it gets."""


class Rollback(PlanBase):
    """The plan that a rollback undoes, and what of it stays."""

    plan_id: str
    """Id of the plan that is undone."""
    done: Count
    """Actions of that plan that the cluster had carried out."""
    jobs: tuple[Name, ...] = ()
    """Jobs that the plan changed or was to change, sorted: the rollback changes no others."""
    pools: tuple[Name, ...] = ()
    """Pools that the plan scaled, sorted; the delays between two scalings do not count for these."""
    layouts: tuple[GpuLayoutBack, ...] = ()
    """MIG layouts that are put back though no job needs them now."""
    stays: tuple[StayingChange, ...] = ()
    """What is not undone, in the order of that plan's actions."""
