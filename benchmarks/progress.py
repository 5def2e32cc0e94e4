"""The proven gap of a search over time, from its milestones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.plan.solution import gap_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def gain_missed(objective: int, bound: int, nothing: int) -> float:
    """
    The part of the possible gain that a plan misses: (bound − objective) / (bound − `nothing`).

    `nothing` is the objective of changing nothing. Other than a gap it is a share of what can be decided at
    all: it is between 0 and 1 for each plan that is not worse than changing nothing, also where guarantees
    are missed and the objective is near 0 or below.
    """
    return max(0, bound - objective) / max(1, bound - nothing)


def gap_at(milestones: Sequence[dict[str, Any]], seconds: float) -> float | None:
    """The proven gap after `seconds`; None before the first plan with a positive objective."""
    known = [gap for when, gap in gaps(milestones) if when <= seconds]
    return known[-1] if known else None


def seconds_to(milestones: Sequence[dict[str, Any]], gap: float) -> float | None:
    """When the proven gap first reached `gap`; None if it never did."""
    return next((when for when, found in gaps(milestones) if found <= gap), None)


def first_plan(milestones: Sequence[dict[str, Any]]) -> float | None:
    """When the first verified plan with a positive objective was found."""
    return next((when for when, _ in gaps(milestones)), None)


def gaps(milestones: Sequence[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """
    (seconds, gap) at each milestone with a positive objective, using the best bound so far.

    A plan without changes has objective 0, or less if guarantees are not met. A gap in percent of that is not
    meaningful, and would not shrink as the plan improves.
    """
    bound: int | None = None
    for each in milestones:
        bound = each["bound"] if bound is None else min(bound, each["bound"])
        if each["objective"] is not None and each["objective"] > 0:
            yield each["seconds"], gap_between(each["objective"], bound)
