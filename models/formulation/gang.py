"""(C2) Gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.problem import Problem


def gang(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    All replicas of a gang are placed or none, on one GPU model.

        min_j · gangs[j,m]  ≤  Σ_{t ∈ m} replicas[j,t]  ≤  max_j · gangs[j,m]        ∀ gangs j, models m
    """
    for index, job_class, option in problem.options():
        size = x.gangs.get((index, option.gpu_model))
        if size is None:
            continue
        replicas = [(column, 1) for column in x.replicas_of(index, option)]
        key = (index, option.gpu_model or "")
        if job_class.elastic:
            yield row("gang", (*key, "min"), [*replicas, (size, -job_class.minimum)], lower=0)
            yield row("gang", (*key, "max"), [*replicas, (size, -job_class.maximum)], upper=0)
        else:
            yield row("gang", key, [*replicas, (size, -job_class.maximum)], lower=0, upper=0)
