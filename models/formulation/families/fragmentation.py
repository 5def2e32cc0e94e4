"""(C12) Fragmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.problem.problem import Problem


def fragmentation(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Free GPUs outside of blocks of the reference size count as waste.

        waste[c]  ≥  Σ_{n ∈ c} f_n − Σ_i g_i · replicas[i,t] − opened[c] − switched[c] − g · phantom[c]  ∀ c

    f_n is the number of wholly free GPUs of node n, g the reference size. The free blocks phantom[c] take
    part in (C3) as if they were replicas of that size.
    """
    for cell, waste in x.waste.items():
        whole = x.cells.states[x.cells.all[cell].group].whole
        constant, givers, given = x.cells.supply(cell, whole)
        columns, sizes = x.block_users(cell)
        single = x.single_gpus(cell)
        yield row_of_arrays(
            "fragmentation",
            (cell,),
            np.concatenate([[waste, x.phantom[cell]], columns, single, givers]).astype(np.int64),
            np.concatenate([[1, problem.charges.reference_gpus], sizes, np.ones(len(single)), -given]).astype(
                np.int64
            ),
            lower=constant,
        )
