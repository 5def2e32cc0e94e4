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

        Σ_{rigid j, k} v_jk · jobs[j,k]  +  Σ_{elastic i, t ∈ k} v_jk · replicas[i,t]

    v_jk is w_j times the speed of the GPU models of tier k for the class, per job or per replica
    (`models.policy.completion_points`).
    """
    points = np.zeros(len(x.upper), dtype=np.int64)
    for index, kind, tier in x.tiers():
        for member in kind.classes:
            paid = problem.classes[member].options[kind.tiers[tier][0]].points
            if kind.elastic:
                points[[column for _, column in x.replicas_of(index, tier)]] = paid
            else:
                points[x.jobs[member, tier]] = paid
    return points
