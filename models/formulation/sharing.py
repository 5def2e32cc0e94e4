"""(C4) Sharing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.rows import Row, dense
from planner.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.problem import Problem


def sharing(problem: Problem, x: Columns) -> Iterator[Row]:  # noqa: ARG001 - every family has the same form
    """
    Shares fit the GPUs already shared and those opened for sharing.

        Σ_i ⌊h_i/d⌋ · replicas[i,t]   ≤   Σ_{GPUs already shared} ⌊f/d⌋  +  ⌊1000/d⌋ · opened[t]     ∀ t, d

    h_i is the share in thousandths, f what a GPU has left; d runs over the shares on the group, over 1, and
    over ⌊1000/(k+1)⌋ + 1 for k = 1…4, of which at most k fit one GPU.
    """
    for group, opened in x.opened.items():
        placed, capacity = x.group[group], x.capacity[group]
        shares = placed.milli[placed.milli > 0]
        columns = np.append(placed.columns, opened)
        for unit in sorted({1, *shares.tolist(), *(MILLI // (most + 1) + 1 for most in range(1, 5))}):
            if unit <= shares.max():
                yield dense(
                    "sharing",
                    (group, unit),
                    columns,
                    np.append(placed.milli // unit, -(MILLI // unit)),
                    upper=capacity.share_floors(unit),
                )
