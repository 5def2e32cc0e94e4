"""Disruption budgets in the plain model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.problem.problem import Problem
    from tests.oracle.columns import ReferenceColumns


def disruption_budget(problem: Problem, x: ReferenceColumns) -> Iterator[Row]:
    """
    Of a group no more leaves its places than the budget leaves.

        Σ_{v ∈ B, k} ( stop[v] + moved[v] + gives[v,k] ) ≤ left_B    of replicas
        Σ_{v ∈ B} ( stop[v] + moved[v] + shrink[v] ) ≤ left_B        of jobs
    """
    for limit in problem.disruption_limits:
        terms = []
        for index in limit.members:
            if limit.whole_jobs:
                terms += [(column, 1) for column in (*x.away(index), x["shrink", index])]
            else:
                positions = range(len(problem.incumbents[index].holds))
                terms += [(column, 1) for at in positions for column in x.leaving(index, at)]
        yield row("disruption_budget", (limit.name,), terms, upper=limit.left)
