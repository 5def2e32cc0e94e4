"""
Max-min fairness over time: the share of its time that each job gets on each GPU model; an LP, by HiGHS.

    max  z
    Σ_m speed_jm · gpus_j / equal_j · x_jm  ≥  z        ∀ jobs j
    Σ_m x_jm  ≤  1                                      ∀ jobs j
    Σ_j gpus_j · x_jm  ≤  capacity_m                    ∀ GPU models m
    x ≥ 0

with equal_j = Σ_m speed_jm · capacity_m / Σ_m capacity_m: the speed of a job on an equal share of all models.
This is the least-attained-service policy for heterogeneous GPU models (Narayanan et al., Heterogeneity-Aware
Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020), with equal weights for all jobs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import highspy
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


def max_min_shares(speed: Floats, gpus: Floats, capacity: Floats) -> Floats:
    """
    Share of its time, from 0 to 1, that each job gets on each GPU model; shape (jobs, models).

    `speed` has the same shape and is 0 where a job cannot run; each job needs a model on which it can run.
    """
    jobs, models = speed.shape
    if not jobs:
        return np.zeros_like(speed)
    equal = speed @ capacity / capacity.sum()
    worth = speed * (gpus / equal)[:, None]
    # Columns: z, then x by job and model. Rows: worth of each job, time of each job, GPUs of each model.
    job = np.repeat(np.arange(jobs), models)
    model = np.tile(np.arange(models), jobs)
    column = 1 + np.arange(jobs * models)
    rows = np.concatenate([np.arange(jobs), job, jobs + job, 2 * jobs + model])
    columns = np.concatenate([np.zeros(jobs, dtype=np.int64), column, column, column])
    factors = np.concatenate([-np.ones(jobs), worth.ravel(), np.ones(jobs * models), np.repeat(gpus, models)])
    lower = np.concatenate([np.zeros(jobs), np.full(jobs + models, -math.inf)])
    upper = np.concatenate([np.full(jobs, math.inf), np.ones(jobs), capacity])
    solution = _maximized_first(
        rows, columns, factors, (lower, upper), most=np.append(math.inf, speed.ravel() > 0)
    )
    found: Floats = np.clip(solution[1:].reshape(jobs, models), 0.0, 1.0)
    return found


def _maximized_first(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    factors: Floats,
    sides: tuple[Floats, Floats],
    *,
    most: Floats,
) -> Floats:
    """Column values between 0 and `most` that make the first column as large as possible."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    lower, upper = sides
    nothing = np.zeros(0, dtype=np.int32)
    highs.addRows(len(lower), lower, upper, 0, nothing, nothing, np.zeros(0))
    order = np.argsort(columns, kind="stable")
    cost = np.zeros(len(most))
    cost[0] = -1.0
    highs.addCols(
        len(most),
        cost,
        np.zeros(len(most)),
        most,
        len(order),
        np.searchsorted(columns[order], np.arange(len(most))).astype(np.int32),
        rows[order].astype(np.int32),
        factors[order],
    )
    highs.run()
    return np.array(highs.getSolution().col_value, dtype=np.float64)
