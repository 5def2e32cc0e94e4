"""Approval: which plans of periodic runs need a person's approval before they are applied."""

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
    """Conditions under which a periodic run waits for approval; applying a plan by hand approves it."""

    needed_for: tuple[ChangeKind, ...] = ()
    """Types of action: a plan with one of them waits for approval."""
    most_changes: Count | None = None
    """A plan with more changes than this waits for approval; absent means no limit."""
    most_preemptions: Count | None = None
    """A plan that preempts more running jobs than this waits for approval; absent means no limit."""
