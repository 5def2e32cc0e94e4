"""(C15) Stranded GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Ints
    from gpuplan.models.problem.problem import Problem


def stranded_gpu(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Replicas with a large demand for another resource also count the GPUs that this demand strands.

        Σ_i taken_i · replicas[i,t]  ≤  Σ_{n of t} usable[n]    ∀ t, resources
        usable[n] = max { Σ_i taken_i · y_i : Σ_i g_i · y_i ≤ f_n, Σ_i a_i · y_i ≤ free_n, y integer }

    opened[c] and switched[c] count here as replicas of one GPU: the first takes the smallest amount of the
    resource that any share takes, the second none. Replicas with shares are left out. The rows are valid for
    any taken_i. It is g_i, or if that is larger the usable GPUs lost per replica when k such replicas are on
    S, the node of the group with the most free capacity. Replica types are lifted one after the other, those
    with the largest amount per GPU first:

        taken_i = max(g_i, min_k ⌊(usable[S] − usable[S less k · (g_i, a_i)]) / k⌋)

    Amounts are counted in units, rounded down on both sides. If no replica type takes more than g_i, there is
    no row.
    """
    for group, cells in x.cells.of_group.items() if x.params.stranded_gpu else ():
        columns, gpus, amounts = _takers(x, group, cells)
        states = x.cells.states[group]
        for resource, name in enumerate(problem.resources):
            free = np.where(states.rounded, 0, states.amounts[:, resource])
            unit = _unit(amounts[:, resource], int(free.max()), x.params.max_stranding_units)
            free, whole = free // unit, np.where(states.rounded, 0, states.whole)
            usable, taken = _lifted(int(whole.max()), int(free.max()), gpus, amounts[:, resource] // unit)
            if (taken == gpus).all():
                continue
            supplies = [_supply(x, cell, usable[whole, free]) for cell in cells]
            yield row_of_arrays(
                "stranded_gpu",
                ("group", group, name),
                np.concatenate([columns, *(givers for _, givers, _ in supplies)]),
                np.concatenate([taken, *(-given for _, _, given in supplies)]),
                upper=sum(constant for constant, _, _ in supplies),
            )


def _takers(x: Columns, group: int, cells: tuple[int, ...]) -> tuple[Ints, Ints, Ints]:
    """Columns of all replicas except shares, with the whole GPUs and amounts that one unit of each takes."""
    members = x.members(group)
    for cell in cells:
        members += x.columns_of_node_class(cell)
    sharing = members.milli > 0
    opened = [x.opened[cell] for cell in cells if cell in x.opened]
    single = [*opened, *(column for cell in cells for column in x.single_gpus(cell) if column not in opened)]
    amounts = np.zeros((len(single), members.amounts.shape[1]), dtype=np.int64)
    if opened:
        amounts[: len(opened)] = members.amounts[sharing].min(axis=0)
    return (
        np.append(members.columns[~sharing], np.array(single, dtype=np.int64)),
        np.append(members.gpus[~sharing], np.ones(len(single), dtype=np.int64)),
        np.append(members.amounts[~sharing], amounts, axis=0),
    )


def _unit(amounts: Ints, largest: int, most: int) -> int:
    """Greatest common divisor of all amounts, or a larger unit if a node has more than `most` of these."""
    return max(1, int(np.gcd.reduce(amounts, initial=0)), -(-largest // most))


def _lifted(gpus: int, units: int, of_gpus: Ints, of_units: Ints) -> tuple[Ints, Ints]:
    """Usable GPUs by free GPUs and units, up to the freest node; and what each column takes."""
    usable = np.zeros((gpus + 1, units + 1), dtype=np.int64)
    sizes, position = np.unique(np.column_stack([of_gpus, of_units]), axis=0, return_inverse=True)
    taken = sizes[:, 0].copy()
    for size in sizes.tolist():
        usable = _with(usable, size, size[0])
    # A replica without GPUs counts as half of one: it comes before all of one GPU that take as much.
    for at in np.lexsort((taken, -sizes[:, 1] / np.maximum(sizes[:, 0], 0.5))).tolist():
        size = sizes[at].tolist()
        left = [_left(usable, size, times) for times in range(1, _times(usable, size) + 1)]
        cost = [int(usable[-1, -1] - rest[-1, -1]) // times for times, rest in enumerate(left, start=1)]
        if min(cost, default=0) > taken[at]:
            taken[at] = min(cost)
            usable = _with(usable, size, int(taken[at]))
    return usable, taken[position.reshape(-1)]


def _with(usable: Ints, size: list[int], taken: int) -> Ints:
    """Usable GPUs if any number of replicas of one more size may be added."""
    more = usable.copy()
    for times in range(1, _times(usable, size) + 1):
        rest = _left(usable, size, times)
        part = more[times * size[0] :, times * size[1] :]
        np.maximum(part, rest + times * taken, out=part)
    return more


def _times(usable: Ints, size: list[int]) -> int:
    """Number of replicas of a size that fit the freest node; 0 for a size that takes nothing."""
    room = [(most - 1) // each for most, each in zip(usable.shape, size, strict=True) if each]
    return min(room, default=0)


def _left(usable: Ints, size: list[int], times: int) -> Ints:
    """Usable GPUs beside `times` replicas of a size, where these fit."""
    return usable[: len(usable) - times * size[0], : usable.shape[1] - times * size[1]]


def _supply(x: Columns, cell: int, by_state: Ints) -> tuple[int, Ints, Ints]:
    """
    Supply of a node class: constant, columns, coefficients.

    On a crowded node the gains of single jobs do not add up. Each job that leaves counts as if it freed all
    that can become free there.
    """
    found = x.cells.all[cell]
    constant, columns, given = x.cells.supply(cell, by_state)
    rounded = x.cells.states[found.group].rounded[found.brought]
    if rounded.any():
        most = np.zeros(len(found.nodes), dtype=np.int64)
        np.maximum.at(most, found.reachable[:, 0], by_state[found.reachable[:, 1]])
        given = np.where(rounded, (most - by_state[found.constant])[found.changed], given)
    return constant, columns, given
