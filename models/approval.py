"""Approval: which plans a person has to allow, where plans are otherwise applied without being asked for."""

from __future__ import annotations

from enum import StrEnum

from planner.models.base import Noun
from planner.models.units import Count


class ChangeKind(StrEnum):
    """Types of action that change a cluster, as plans name them."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"
    PREEMPT = "preempt"
    REPARTITION = "repartition"
    CORDON = "cordon"
    DRAIN = "drain"
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"


class Approval(Noun):
    """What periodic runs leave to people; a plan that is applied by hand is approved by that."""

    needed_for: tuple[ChangeKind, ...] = ()
    """A plan with an action of one of these types waits for a person."""
    most_changes: Count | None = None
    """So does one that changes more than this; None is no limit."""
    most_preemptions: Count | None = None
    """And one that stops more running jobs than this."""
