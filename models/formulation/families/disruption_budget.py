"""(C18) Disruption budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import DisruptionLimit, Problem


def disruption_budget(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Of no group of running jobs more are stopped, moved and shrunk than its disruption budget leaves.

        Σ_{v ∈ B} ( held_v · (stop[v] + move[v]) + shrink[v] )  ≤  left_B    ∀ budgets B of replicas
        Σ_{v ∈ B} ( stop[v] + move[v] + resized[v] )  ≤  left_B    ∀ budgets B of jobs

    left_B is what the budget allows to be unavailable, less what is unavailable already, at least 0. Members
    that must leave for a reservation window are not in B.
    """
    for limit in problem.disruption_limits:
        terms = [term for v in limit.members for term in _taken(problem, x, limit, v)]
        yield row("disruption_budget", (limit.name,), terms, upper=limit.left)


def _taken(problem: Problem, x: Columns, limit: DisruptionLimit, v: int) -> Iterator[Term]:
    whole = limit.taken(len(problem.incumbents[v].holds))
    yield from ((column, whole) for column in x.fates.leaves(v))
    if v in x.shrink:
        yield (x.resized[v] if limit.whole_jobs else x.shrink[v]), 1
