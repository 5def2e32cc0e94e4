"""The linear relaxation of a formulation, solved by HiGHS without anything of the product's own solvers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import highspy
import numpy as np

if TYPE_CHECKING:
    from planner.models.formulation.rows import Formulation

_WHOLE = 1e-6
"""So near to an integer a column counts as one."""


@dataclass(frozen=True)
class Relaxation:
    """What the linear relaxation says, and how long it took to say so."""

    seconds: float
    bound: int | None
    """None if HiGHS did not finish."""
    fractional: int
    """Columns that are not integral at the vertex found."""


def relax(formulation: Formulation, *, time_limit: float) -> Relaxation:
    """Lower the rows, drop integrality, solve by simplex."""
    began = time.monotonic()
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("time_limit", time_limit)
    highs.passModel(_lowered(formulation))
    highs.run()
    took = time.monotonic() - began
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return Relaxation(took, None, 0)
    values = np.array(highs.getSolution().col_value)
    lost = highs.getInfo().objective_function_value
    bound = math.floor(-lost + max(1e-6, 1e-9 * abs(lost)))
    return Relaxation(took, bound, int((np.abs(values - np.rint(values)) > _WHOLE).sum()))


def _lowered(formulation: Formulation) -> highspy.HighsLp:
    rows, infinite = formulation.rows, highspy.kHighsInf
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(formulation.upper), len(rows)
    model.col_cost_ = -formulation.objective.astype(np.float64)
    model.col_lower_ = np.zeros(len(formulation.upper))
    model.col_upper_ = formulation.upper.astype(np.float64)
    model.row_lower_ = np.array([-infinite if row.lower is None else row.lower for row in rows], dtype=float)
    model.row_upper_ = np.array([infinite if row.upper is None else row.upper for row in rows], dtype=float)
    nothing = np.zeros(0, dtype=np.int64)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.cumsum([0, *(len(row.columns) for row in rows)]).astype(np.int32)
    matrix.index_ = np.concatenate([nothing, *(row.columns for row in rows)]).astype(np.int32)
    matrix.value_ = np.concatenate([nothing, *(row.coefficients for row in rows)]).astype(np.float64)
    return model
