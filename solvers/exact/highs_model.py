"""A formulation as a model of HiGHS, and its rows as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import highspy
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpuplan.models.formulation.rows import Formulation, Row

    Floats = NDArray[np.float64]
    Positions = NDArray[np.int32]


def highs_model(formulation: Formulation) -> Any:
    """
    The formulation as a `HighsLp` to minimize, without integrality.

    PuLP takes about a hundred times as long for large models.
    """
    rows = formulation.rows
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(formulation.upper), len(rows)
    model.col_cost_ = -formulation.objective.astype(np.float64)
    model.col_lower_ = np.zeros(len(formulation.upper))
    model.col_upper_ = formulation.upper.astype(np.float64)
    model.row_lower_, model.row_upper_ = row_bounds(rows, highspy.kHighsInf)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.index_, matrix.value_, matrix.start_ = csr_arrays(rows)
    return model


def csr_arrays(rows: Sequence[Row]) -> tuple[Positions, Floats, Positions]:
    """Columns and coefficients of the nonzeros, row by row, and the start of each row."""
    nothing = np.zeros(0, dtype=np.int64)
    return (
        np.concatenate([nothing, *(row.columns for row in rows)]).astype(np.int32),
        np.concatenate([nothing, *(row.coefficients for row in rows)]).astype(np.float64),
        np.cumsum([0, *(len(row.columns) for row in rows)]).astype(np.int32),
    )


def row_bounds(rows: Sequence[Row], infinite: float) -> tuple[Floats, Floats]:
    """Lower and upper limit of each row."""
    return (
        np.array([-infinite if row.lower is None else row.lower for row in rows], dtype=float),
        np.array([infinite if row.upper is None else row.upper for row in rows], dtype=float),
    )
