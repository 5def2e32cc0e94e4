"""(C3) Node staircase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.models.formulation.rows import Row, dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns, GroupColumns
    from planner.models.problem import Problem


def staircase(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Whole GPUs fit the nodes of their group, block size by block size.

        Σ_i ⌊g_i/s⌋ · replicas[i,t]  +  [s = 1] · opened[t]   ≤   Σ_{n ∈ t} blocks[n,s]        ∀ t, s

    s runs over the sizes g_i on group t, and 1. blocks[n,s] is ⌊f_n/s⌋, f_n the wholly free GPUs of node n,
    and no more than its other resources allow, given what the most frugal class takes of them a block.
    Floors are superadditive, so the rows hold for every placement; where each size divides the next they
    suffice: first fit decreasing packs whatever satisfies them.
    """
    for group, placed in x.group.items():
        capacity = x.capacity[group]
        for size in sorted({1, *placed.gpus[placed.gpus > 0].tolist()}):
            blocks = placed.gpus // size
            columns = placed.columns
            users = blocks > 0
            if size == 1 and group in x.opened:
                users |= placed.milli > 0
                columns = np.append(columns, x.opened[group])
                blocks = np.append(blocks, 1)
            if users.any():
                yield dense(
                    "staircase",
                    (group, size),
                    columns,
                    blocks,
                    upper=capacity.units(size, _cheapest(problem, placed, users, size)),
                )


def _cheapest(
    problem: Problem, placed: GroupColumns, users: np.ndarray[tuple[int], np.dtype[np.bool_]], size: int
) -> Iterator[tuple[int, int, int]]:
    """(resource, amount, blocks) of the class that takes the least of each resource a block."""
    for resource in range(len(problem.resources)):
        amounts = placed.amounts[users, resource]
        # A GPU cut into shares is one block, and carries at least one share.
        per = np.maximum(1, placed.gpus[users] // size)
        best = int(np.argmin(amounts / per))
        if amounts[best]:
            yield resource, int(amounts[best]), int(per[best])
