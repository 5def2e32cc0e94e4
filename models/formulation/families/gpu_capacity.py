"""(C3) GPU capacity of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row, row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.problem import Problem


def gpu_capacity(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Whole GPUs fit the nodes of each node class, block size by block size.

        Σ_i ⌊g_i/s⌋ · replicas[i,t] + [s = 1] · (opened[c] + switched[c])  ≤  Σ_{n ∈ c} blocks[n,s]  ∀ c, s

    s runs over the sizes g_i on node class c, and 1. blocks[n,s] is ⌊f_n/s⌋ with f_n the wholly free GPUs of
    node n in its state, and at most what its other resources allow, given the smallest amount per block that
    any class takes of them. Evictions and the opening and closing of nodes replace one state by another, so
    the right-hand side is a constant plus a sum over out, open and close.

    Floors are superadditive, so the rows hold for every placement. Where each size divides the next they are
    sufficient: first fit decreasing packs every solution of them. Where some replica type has a locality
    rule, a node group has several node classes; the other replica types are then assigned to these by size:

        Σ_{i: g_i  =  s} replicas[i,t]  =  Σ_{c of t} blocks[c,s]    ∀ t, s
    """
    for group, cells in x.cells.of_group.items():
        ordinary = x.members(group)
        if len(cells) > 1:
            for size in sorted({*ordinary.gpus[ordinary.gpus > 0].tolist()}):
                columns = ordinary.columns[ordinary.gpus == size]
                dealt = [(x.blocks[cell][size], -1) for cell in cells]
                terms = [*((int(column), 1) for column in columns), *dealt]
                yield row("gpu_capacity", ("group", group, size, "cells"), terms, lower=0, upper=0)
        for cell in cells:
            yield from _rows_of(problem, x, cell)


def _rows_of(problem: Problem, x: Columns, cell: int) -> Iterator[Row]:
    found = x.cells.all[cell]
    states = x.cells.states[found.group]
    columns, sizes = x.block_users(cell)
    single = np.array(x.single_gpus(cell), dtype=np.int64)
    phantom = x.phantom.get(cell)
    members = x.members(found.group) + x.columns_of_node_class(cell)
    reference = {problem.charges.reference_gpus} if phantom is not None else set()
    for size in sorted({1, *sizes.tolist(), *reference}):
        blocks = sizes // size
        # A GPU that is cut takes a block of one; for larger blocks ⌊1/s⌋ is 0.
        switched = [column for column in single if column != x.opened.get(cell)] if size == 1 else []
        users = (members.gpus >= size) | ((members.milli > 0) if size == 1 else False)
        cheapest = list(_cheapest(members.amounts, members.gpus, users, size))
        if size == 1:
            all_columns, all_blocks = np.append(columns, single), np.append(blocks, np.ones_like(single))
        else:
            all_columns, all_blocks = columns, blocks
        if phantom is not None and (idle := problem.charges.reference_gpus // size):
            key = (cell, size, "idle")
            with_idle = np.append(all_columns, phantom), np.append(all_blocks, idle)
            yield _supplied(x, cell, key, *with_idle, states.blocks(size))
        if switched:
            # A GPU switched to MIG mode may need no other resource, so none limits the blocks here.
            yield _supplied(x, cell, (cell, size, "mig"), all_columns, all_blocks, states.blocks(size))
            kept = ~np.isin(all_columns, switched)
            all_columns, all_blocks = all_columns[kept], all_blocks[kept]
        if all_blocks.any():
            by_state = states.blocks(size, cheapest)
            yield _supplied(x, cell, (cell, size), all_columns, all_blocks, by_state)


def _supplied(
    x: Columns, cell: int, key: tuple[int | str, ...], columns: Ints, blocks: Ints, by_state: Ints
) -> Row:
    """Usage is at most what the states of the node class's nodes offer."""
    constant, givers, given = x.cells.supply(cell, by_state)
    return row_of_arrays(
        "gpu_capacity", key, np.append(columns, givers), np.append(blocks, -given), upper=constant
    )


def _cheapest(amounts: Ints, gpus: Ints, users: Ints, size: int) -> Iterator[tuple[int, int, int]]:
    """(resource, amount, blocks) of the class that takes the smallest amount of each resource per block."""
    if not users.any():
        return
    for resource in range(amounts.shape[1]):
        taken = amounts[users, resource]
        # A GPU cut into shares is one block and hosts at least one share.
        per = np.maximum(1, gpus[users] // size)
        best = int(np.argmin(taken / per))
        if taken[best]:
            yield resource, int(taken[best]), int(per[best])
