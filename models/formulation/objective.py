"""(O) The objective: one term per function, in points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from planner.models.formulation.columns import Columns
    from planner.models.formulation.rows import Ints
    from planner.models.problem import Problem


def completion(problem: Problem, x: Columns) -> Ints:
    """
    Weighted completion: what the placed jobs are worth.

        Σ_{rigid j, m} v_jm · jobs[j,m]  +  Σ_{elastic j, t ∈ m} v_jm · replicas[j,t]

    v_jm is w_j times the speed of model m for the class, per job or per replica
    (`models.policy.completion_points`).
    """
    points = np.zeros(len(x.upper), dtype=np.int64)
    for index, job_class, option in problem.options():
        earning = x.replicas_of(index, option) if job_class.elastic else x.jobs_of(index, option)
        for column in earning:
            points[column] = option.points
    return points
