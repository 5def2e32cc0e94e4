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

        Σ_m jobs[j,m]  ≤  n_j        ∀ classes j

    where jobs[j,m] is gangs[j,m] for gangs and Σ_{t ∈ m} replicas[j,t] for single replicas.
    """
    for index, job_class in enumerate(problem.classes):
        columns = [column for option in job_class.options for column in x.jobs_of(index, option)]
        if columns:
            yield row("assignment", (index,), ((column, 1) for column in columns), upper=len(job_class.jobs))
