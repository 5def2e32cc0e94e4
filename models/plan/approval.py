"""Approval: which plans a person has to allow, where plans are otherwise applied without being asked for."""

from __future__ import annotations

from enum import StrEnum

from gpuplan.models.base import Noun
from gpuplan.models.units import Count


class ChangeKind(StrEnum):
    """Types of action that change a cluster, as plans name them."""

    RELEASE = "release"
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
    """Types of action: a plan with one of them waits for a person."""
    most_changes: Count | None = None
    """A plan with more changes than this waits for a person; absent is no limit."""
    most_preemptions: Count | None = None
    """A plan that stops more running jobs than this waits for a person; absent is no limit."""
