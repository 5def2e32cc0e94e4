"""
Kind: classes whose replicas are interchangeable, whatever each is worth and whichever queue pays.

Which group a replica stands on is decided once for a kind; how many jobs of each class are placed is decided
class by class. So prices and queues multiply only the short columns, not those in the packing rows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.models.queue import ALL_MODELS

if TYPE_CHECKING:
    from planner.models.problem import JobClass, Problem, Shape

Tier: TypeAlias = tuple[int, ...]
"""Options of a class, by position, that are decided as one since nothing but their places differs."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Classes that differ only in points and queue."""

    classes: tuple[int, ...]
    """Indices into `Problem.classes`; exactly one if the gang is elastic."""
    shape: Shape
    minimum: int
    maximum: int
    tiers: tuple[Tier, ...]
    groups: tuple[tuple[int, ...], ...]
    """Node groups of each tier."""

    @property
    def elastic(self) -> bool:
        """True if the number of replicas of a job is a choice."""
        return self.minimum < self.maximum


def kinds_of(problem: Problem) -> tuple[Kind, ...]:
    """All kinds of a problem, in the order of their first class."""
    members: dict[Any, list[int]] = defaultdict(list)
    tiers: dict[Any, tuple[Tier, ...]] = {}
    for index, job_class in enumerate(problem.classes):
        split = _tiers(problem, job_class)
        key = (
            job_class.shape,
            job_class.minimum,
            job_class.maximum,
            tuple((option.gpu_model, option.groups) for option in job_class.options),
            split,
            index if job_class.elastic else None,
        )
        members[key].append(index)
        tiers[key] = split
    return tuple(
        Kind(
            classes=tuple(indices),
            shape=first.shape,
            minimum=first.minimum,
            maximum=first.maximum,
            tiers=tiers[key],
            groups=tuple(
                tuple(group for option in tier for group in first.options[option].groups)
                for tier in tiers[key]
            ),
        )
        for key, indices in members.items()
        for first in (problem.classes[indices[0]],)
    )


def _tiers(problem: Problem, job_class: JobClass) -> tuple[Tier, ...]:
    """
    Options that pay alike are one tier, unless something tells them apart.

    A gang must know the one GPU model it is on, and so must a quota for single models.
    """
    apart = job_class.maximum > 1 or _has_model_quota(problem, job_class.queue)
    tiers: dict[int, list[int]] = defaultdict(list)
    for position, option in enumerate(job_class.options):
        tiers[position if apart else option.points].append(position)
    return tuple(tuple(positions) for positions in tiers.values())


def _has_model_quota(problem: Problem, queue: int) -> bool:
    """True if a quota for one GPU model binds this queue or one above it."""
    for budget in problem.budgets:
        above: int | None = queue
        while budget.resource != ALL_MODELS and above is not None:
            if budget.limit[above] is not None or budget.kept[above]:
                return True
            above = budget.parent[above]
    return False
