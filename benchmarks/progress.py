"""What was known of a plan at an instant of its search: the gap over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.plan.solution import gap_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def gap_at(milestones: Sequence[dict[str, Any]], seconds: float) -> float | None:
    """The proven gap after so many seconds; None before the first plan worth something."""
    known = [gap for when, gap in gaps(milestones) if when <= seconds]
    return known[-1] if known else None


def seconds_to(milestones: Sequence[dict[str, Any]], gap: float) -> float | None:
    """When the proven gap was first so small; None if it never was."""
    return next((when for when, found in gaps(milestones) if found <= gap), None)


def first_plan(milestones: Sequence[dict[str, Any]]) -> float | None:
    """When there was a verified plan that is worth something."""
    return next((when for when, _ in gaps(milestones)), None)


def gaps(milestones: Sequence[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """
    (seconds, gap) at each milestone that has a plan worth something; bounds that were proven stay proven.

    Leaving all as it is is a plan too, worth nothing, or less where guarantees are not met: a gap in percent
    of that says nothing, and would not shrink as the plan gets better.
    """
    bound: int | None = None
    for each in milestones:
        bound = each["bound"] if bound is None else min(bound, each["bound"])
        if each["objective"] is not None and each["objective"] > 0:
            yield each["seconds"], gap_between(each["objective"], bound)
