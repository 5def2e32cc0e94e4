"""
Replica type: job classes with interchangeable replicas, regardless of value and queue.

Replicas are assigned to nodes once per replica type; the number of placed jobs is decided per class. So
values and queues multiply only the few job columns, not the columns of the packing rows. Of a job that
scales, replicas of equal points are counted by one column.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from gpuplan.models.queue import ALL_MODELS, is_gpu_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.problem.jobs import JobClass, LocalityRule, Shape
    from gpuplan.models.problem.problem import Problem

Tier: TypeAlias = tuple[int, ...]
"""Positions of options of a class that are decided together because only their nodes differ."""


@dataclass(frozen=True, slots=True)
class ReplicaType:
    """Job classes that differ only in points and queue."""

    classes: tuple[int, ...]
    """Indices into `Problem.classes`; exactly one if points depend on the number of replicas."""
    shape: Shape
    minimum: int
    maximum: int
    rank: int
    claim: int
    together: LocalityRule
    tiers: tuple[Tier, ...]
    groups: tuple[tuple[int, ...], ...]
    """Node groups of each tier."""
    per_replica: bool
    """True if points are paid per replica, the number of replicas is a choice, and all have equal points."""

    @property
    def rigid(self) -> bool:
        """True if every job has the same number of replicas."""
        return self.minimum == self.maximum

    @property
    def ignores_domains(self) -> bool:
        """True if the replicas have no locality rule."""
        rules = self.together
        return rules.required is None and rules.preferred is None and rules.spread is None


def replica_types_of(problem: Problem) -> tuple[ReplicaType, ...]:
    """All replica types of a problem, in the order of their first class."""
    members: dict[Any, list[int]] = defaultdict(list)
    tiers: dict[Any, tuple[Tier, ...]] = {}
    for index, job_class in enumerate(problem.classes):
        if not job_class.startable:
            continue
        split = _tiers(problem, job_class)
        key = (*_packing(job_class), split, index if job_class.per_replica or job_class.scaled else None)
        members[key].append(index)
        tiers[key] = split
    return tuple(
        ReplicaType(
            classes=tuple(indices),
            shape=first.shape,
            minimum=first.minimum,
            maximum=first.maximum,
            rank=first.rank,
            claim=first.claim,
            together=first.together,
            tiers=tiers[key],
            groups=tuple(
                tuple(group for option in tier for group in first.options[option].groups)
                for tier in tiers[key]
            ),
            per_replica=first.per_replica,
        )
        for key, indices in members.items()
        for first in (problem.classes[indices[0]],)
    )


def _packing(job_class: JobClass) -> tuple[object, ...]:
    """All attributes that decide where replicas may be placed and what they take and cost there."""
    return (
        job_class.shape,
        job_class.minimum,
        job_class.maximum,
        (job_class.rank, job_class.claim),
        job_class.together,
        job_class.node_points,
        (job_class.profile, job_class.workload, job_class.carries, job_class.avoids),
        tuple((option.gpu_model, option.groups) for option in job_class.options),
    )


def _tiers(problem: Problem, job_class: JobClass) -> tuple[Tier, ...]:
    """
    Group options of equal value into one tier, unless something distinguishes them.

    The GPU model must be known for a gang, and where a quota or guarantee of a single model applies.
    """
    apart = job_class.maximum > 1 or _counts_by_model(problem, job_class.queue)
    tiers: dict[Any, list[int]] = defaultdict(list)
    for position, option in enumerate(job_class.options):
        tiers[position if apart else (option.points, option.once, option.ends[0])].append(position)
    return tuple(tuple(positions) for positions in tiers.values())


def _counts_by_model(problem: Problem, queue: int) -> bool:
    """True if a quota or guarantee of one GPU model applies to this queue or one above it."""
    if any(each.resource != ALL_MODELS and queue in each.queues for each in problem.guarantees):
        return True
    for budget in problem.budgets:
        above: int | None = queue
        while is_gpu_model(budget.resource) and above is not None:
            if budget.limit[above] is not None or budget.kept[above]:
                return True
            above = budget.parent[above]
    return False


class ValueTier(NamedTuple):
    """Replicas of equal points, counted by one column."""

    column: int
    points: int
    """Points of each replica."""
    width: int
    """Number of replicas of one job."""


def value_tiers(points: Iterable[int], jobs: int, new: Callable[[int], int]) -> tuple[ValueTier, ...]:
    """Split replicas with these points, in order, into parts for `jobs` jobs; `new` makes a column."""
    runs = ((each, sum(1 for _ in run)) for each, run in groupby(points))
    return tuple(ValueTier(new(width * jobs), each, width) for each, width in runs)


def fill_tiers(found: Iterable[ValueTier], replicas: int) -> dict[int, int]:
    """Value of each column for one job with this many replicas: the first parts fill up first."""
    values: dict[int, int] = {}
    for part in found:
        values[part.column] = min(part.width, max(0, replicas))
        replicas -= part.width
    return values
