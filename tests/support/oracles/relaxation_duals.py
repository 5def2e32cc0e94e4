"""Multipliers of a formulation's rows from its linear relaxation, with HiGHS."""

from __future__ import annotations

import highspy
import numpy as np

from gpuplan.solvers.exact.highs_model import highs_model


def duals(formulation, *, iterations=None):
    """(value, multipliers) of the linear relaxation; after so many iterations of the dual simplex, or all."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("presolve", "off")
    if iterations is not None:
        highs.setOptionValue("simplex_iteration_limit", iterations)
    highs.passModel(highs_model(formulation))
    highs.run()
    ended = highs.getModelStatus()
    if ended == highspy.HighsModelStatus.kModelEmpty:
        return 0.0, np.zeros(len(formulation.rows))
    assert iterations is not None or ended == highspy.HighsModelStatus.kOptimal, ended
    return -highs.getInfo().objective_function_value, -np.array(highs.getSolution().row_dual)
