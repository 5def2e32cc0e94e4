"""Aggregate answer → concrete nodes and GPUs; what found no place is counted, never hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solvers.greedy import fill, ranking
from planner.solvers.ledger import Ledger, Site

if TYPE_CHECKING:
    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Ints
    from planner.models.problem import Problem


def disaggregate(problem: Problem, x: Columns, values: Ints) -> tuple[Ledger, int]:
    """
    Realize the counts of an aggregate answer, then fill what is left; also the number of jobs missed.

    First fit decreasing, equal sizes by density: on sizes that divide each other, with no other resource
    scarce, nothing is missed. Elsewhere, if it misses some, a second pass takes only replicas of several GPUs
    by size and all others by density, which loses less of value; the better of the two counts.
    """
    best, missed = _realize(problem, x, values, _largest_first(problem))
    if missed:
        again = _realize(problem, x, values, _widest_first(problem))
        best, missed = max((best, missed), again, key=lambda result: (result[0].objective, -result[1]))
    return best, missed


def _realize(problem: Problem, x: Columns, values: Ints, order: list[int]) -> tuple[Ledger, int]:
    """Place class by class; one that finds its planned group full may go to any group right away."""
    ledger = Ledger(problem)
    left = {key: int(values[column]) for key, column in x.replicas.items()}
    kind_of = {member: index for index, kind in enumerate(x.kinds) for member in kind.classes}
    missed = 0
    for index in order:
        kind = kind_of[index]
        astray = 0
        for tier, positions in enumerate(x.kinds[kind].tiers):
            if (column := x.jobs.get((index, tier))) is not None and (jobs := int(values[column])):
                for position in positions:
                    jobs -= _place_as_planned(ledger, index, position, jobs, left, kind)
                astray += jobs
        for option in problem.classes[index].options:
            if astray:
                astray -= ledger.place(index, option, jobs=astray)
        missed += astray
    fill(ledger)
    return ledger, missed


def _place_as_planned(
    ledger: Ledger, index: int, position: int, jobs: int, left: dict[tuple[int, int], int], kind: int
) -> int:
    """Place jobs of a class on one option, on the groups where the answer left places for its kind."""
    job_class = ledger.problem.classes[index]
    option = job_class.options[position]
    sites: list[Site] = []
    for group in option.groups:
        wanted = min(left.get((kind, group), 0), jobs * job_class.maximum - len(sites))
        if wanted > 0:
            found = ledger.take(job_class.shape, (group,), wanted)
            left[kind, group] -= len(found)
            sites += found
    return ledger.settle(index, option, sites, jobs=jobs) if sites else 0


def _largest_first(problem: Problem) -> list[int]:
    return sorted(ranking(problem), key=lambda index: -problem.classes[index].shape.quota_milli)


def _widest_first(problem: Problem) -> list[int]:
    return sorted(ranking(problem), key=lambda index: -max(1, problem.classes[index].shape.gpus))
