"""Approval: which plans of periodic runs need a person's approval before they are applied."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from gpuplan.models.base import Noun
from gpuplan.models.plan.actions import ACTIONS, ActionKind
from gpuplan.models.units import Count


def _changing(kind: ActionKind) -> ActionKind:
    if kind not in ACTIONS:
        raise ValueError(f"expected an action that changes the cluster, found {kind}")
    return kind


class Approval(Noun):
    """Conditions under which a periodic run waits for approval; applying a plan by hand approves it."""

    needed_for: tuple[Annotated[ActionKind, AfterValidator(_changing)], ...] = ()
    """Types of action: a plan with one of them waits for approval."""
    most_changes: Count | None = None
    """A plan with more changes than this waits for approval; absent means no limit."""
    most_preemptions: Count | None = None
    """A plan that preempts more running jobs than this waits for approval; absent means no limit."""
