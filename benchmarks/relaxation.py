"""The linear relaxation of a formulation, without the additions of the product's solver."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import highspy
import numpy as np

from gpuplan.solvers.exact.highs_model import highs_model

if TYPE_CHECKING:
    from gpuplan.models.formulation.rows import Formulation

_WHOLE = 1e-6
"""Tolerance within which a column counts as integral."""


@dataclass(frozen=True)
class Relaxation:
    """Result of the linear relaxation, and the seconds it took."""

    seconds: float
    bound: int | None
    """None if HiGHS did not finish."""
    fractional: int
    """Columns that are not integral at the vertex found."""


def relax(formulation: Formulation, *, time_limit: float) -> Relaxation:
    """Build the rows, drop integrality, and solve by simplex."""
    began = time.monotonic()
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("time_limit", time_limit)
    highs.passModel(highs_model(formulation))
    highs.run()
    took = time.monotonic() - began
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return Relaxation(took, None, 0)
    values = np.array(highs.getSolution().col_value)
    lost = highs.getInfo().objective_function_value
    bound = math.floor(-lost + max(1e-6, 1e-9 * abs(lost)))
    return Relaxation(took, bound, int((np.abs(values - np.rint(values)) > _WHOLE).sum()))
