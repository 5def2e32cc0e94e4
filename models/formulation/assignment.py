"""(C1) Assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.problem import Problem


def assignment(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    No job is placed twice.

        Σ_k jobs[j,k]  ≤  n_j        ∀ classes j of several tiers

    A class of one tier needs no row: its column's upper bound says it.
    """
    for kind in x.kinds:
        for index in kind.classes:
            columns = [
                column for tier in range(len(kind.tiers)) if (column := x.jobs.get((index, tier))) is not None
            ]
            if len(columns) > 1:
                jobs = len(problem.classes[index].jobs)
                yield row("assignment", (index,), ((column, 1) for column in columns), upper=jobs)
