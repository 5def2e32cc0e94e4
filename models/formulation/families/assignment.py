"""(C1) Assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.problem.problem import Problem


def assignment(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    No job is placed twice; a job that migrates is placed once, and a job that stays is not placed.

        Σ_k jobs[j,k]  ≤  n_j    ∀ classes j of several tiers
        Σ_k jobs[j,k]  =  move[v]    ∀ classes j that place migrating job v

    A class of one tier needs no row of the first form: the upper bound of its column implies it.
    """
    for kind in x.kinds:
        for index in kind.classes:
            job_class = problem.classes[index]
            columns = [
                (column, 1)
                for tier in range(len(kind.tiers))
                if (column := x.jobs.get((index, tier))) is not None
            ]
            if job_class.role is ClassRole.MOVE and job_class.incumbent is not None:
                moved = [*columns, (x.move[job_class.incumbent], -1)]
                yield row("assignment", (index,), moved, lower=0, upper=0)
            elif len(columns) > 1:
                yield row("assignment", (index,), columns, upper=len(job_class.jobs))
