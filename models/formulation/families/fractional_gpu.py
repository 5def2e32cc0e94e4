"""(C4) Fractional GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row_of_arrays
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.columns_now import ReplicaColumns
    from gpuplan.models.problem.problem import Problem


def fractional_gpu(problem: Problem, x: Columns) -> Iterator[Row]:  # noqa: ARG001 - every family has the same form
    """
    Shares fit the GPUs that are already shared and those opened for sharing.

        Σ_i ⌊h_i/d⌋ · replicas[i,t]  ≤  Σ_{c of t} ( shared[c,d] + ⌊1000/d⌋ · opened[c] )    ∀ t, d

    and for each node class with only the replica types that have a locality rule. h_i is the share in
    thousandths. shared[c,d] is the sum of ⌊f/d⌋ over GPUs already shared, where f is what is free of one
    after evictions. d runs over the shares of the members, over 1, and over ⌊1000/(k+1)⌋ + 1 for k = 1…4: at
    most k shares of that size fit one GPU.
    """
    for group, cells in x.cells.of_group.items():
        members = x.members(group)
        for cell in cells:
            located = x.columns_of_node_class(cell)
            if len(cells) > 1 and located.milli.any():
                yield from _rows_of(x, ("cell", cell), (cell,), located)
            members += located
        if members.milli.any():
            yield from _rows_of(x, ("group", group), cells, members)


def _rows_of(
    x: Columns, key: tuple[int | str, ...], cells: tuple[int, ...], members: ReplicaColumns
) -> Iterator[Row]:
    shares = members.milli[members.milli > 0]
    opened = np.array([x.opened[cell] for cell in cells if cell in x.opened], dtype=np.int64)
    # With five or more equal shares a GPU wastes less than a sixth of itself: the sum (unit 1) says enough.
    for unit in sorted({1, *shares.tolist(), *(MILLI // (most + 1) + 1 for most in range(1, 5))}):
        if unit > shares.max():
            continue
        columns = [members.columns, opened]
        coefficients = [members.milli // unit, np.full(len(opened), -(MILLI // unit))]
        upper = 0
        for cell in cells:
            by_state = x.cells.states[x.cells.all[cell].group].share_floors(unit)
            constant, givers, given = x.cells.supply(cell, by_state)
            upper += constant
            columns.append(givers)
            coefficients.append(-given)
        yield row_of_arrays(
            "fractional_gpu", (*key, unit), np.concatenate(columns), np.concatenate(coefficients), upper=upper
        )
