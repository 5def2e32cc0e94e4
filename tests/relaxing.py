"""Multipliers of a formulation's rows from its linear relaxation, with HiGHS."""

from __future__ import annotations

import highspy
import numpy as np


def duals(formulation, *, iterations=None):
    """(value, multipliers) of the linear relaxation; after so many iterations of the dual simplex, or all."""
    names, rows = highspy, formulation.rows
    model = names.HighsLp()
    model.num_col_, model.num_row_ = len(formulation.upper), len(rows)
    model.col_cost_ = -formulation.objective.astype(float)
    model.col_lower_ = np.zeros(len(formulation.upper))
    model.col_upper_ = formulation.upper.astype(float)
    model.row_lower_ = np.array([-names.kHighsInf if row.lower is None else row.lower for row in rows], float)
    model.row_upper_ = np.array([names.kHighsInf if row.upper is None else row.upper for row in rows], float)
    matrix, none = model.a_matrix_, np.zeros(0, dtype=int)
    matrix.format_ = names.MatrixFormat.kRowwise
    matrix.start_ = np.cumsum([0, *(len(row.columns) for row in rows)]).astype(np.int32)
    matrix.index_ = np.concatenate([none, *(row.columns for row in rows)]).astype(np.int32)
    matrix.value_ = np.concatenate([none, *(row.coefficients for row in rows)]).astype(float)
    highs = names.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("presolve", "off")
    if iterations is not None:
        highs.setOptionValue("simplex_iteration_limit", iterations)
    highs.passModel(model)
    highs.run()
    ended = highs.getModelStatus()
    if ended == names.HighsModelStatus.kModelEmpty:
        return 0.0, np.zeros(len(rows))
    assert iterations is not None or ended == names.HighsModelStatus.kOptimal, ended
    return -highs.getInfo().objective_function_value, -np.array(highs.getSolution().row_dual)
