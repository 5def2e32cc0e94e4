"""Aggregate answer → concrete nodes and GPUs; what found no place is counted, never hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solvers.greedy import fill, ranking
from planner.solvers.ledger import Ledger, Site

if TYPE_CHECKING:
    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Ints
    from planner.models.problem import Option, Problem


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
    missed = 0
    for index in order:
        options = problem.classes[index].options
        astray = 0
        for option in options:
            if jobs := sum(int(values[column]) for column in x.jobs_of(index, option)):
                sites = _sites(ledger, x, values, index, option)
                astray += jobs - ledger.settle(index, option, sites, jobs=jobs)
        for option in options:
            if astray:
                astray -= ledger.place(index, option, jobs=astray)
        missed += astray
    fill(ledger)
    return ledger, missed


def _sites(ledger: Ledger, x: Columns, values: Ints, index: int, option: Option) -> list[Site]:
    shape = ledger.problem.classes[index].shape
    sites: list[Site] = []
    for group in option.groups:
        column = x.replicas.get((index, group))
        if column is not None and values[column]:
            sites += ledger.take(shape, ledger.nodes_of((group,)), int(values[column]))
    return sites


def _largest_first(problem: Problem) -> list[int]:
    return sorted(ranking(problem), key=lambda index: -problem.classes[index].shape.quota_milli)


def _widest_first(problem: Problem) -> list[int]:
    return sorted(ranking(problem), key=lambda index: -max(1, problem.classes[index].shape.gpus))
