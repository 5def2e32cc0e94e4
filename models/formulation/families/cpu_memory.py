"""(C5) CPU, memory and other countable resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation.rows import Row, row_of_arrays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.columns_now import ReplicaColumns
    from gpuplan.models.problem.problem import Problem


def cpu_memory(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Countable resources suffice, in total and for replicas that are large relative to a node.

        Σ_i ⌊a_i/u⌋ · replicas[i,t]  ≤  Σ_{n of t} ⌊free_n/u⌋    ∀ t, resources, units u

    and for each node class with only the replica types that have a locality rule. u = 1 is the total. u =
    ⌊C/(k+1)⌋ + 1 for k = 1…8, with C the largest amount that a node may have free, states that at most k
    replicas larger than C/(k+1) fit one node. Where all replicas take the same amount, that amount as unit
    implies the others.
    """
    for group, cells in x.cells.of_group.items():
        members = x.members(group)
        for cell in cells:
            located = x.columns_of_node_class(cell)
            if len(cells) > 1 and len(located.columns):
                yield from _rows_of(problem, x, ("cell", cell), (cell,), located)
            members += located
        yield from _rows_of(problem, x, ("group", group), cells, members)


def _rows_of(
    problem: Problem, x: Columns, key: tuple[int | str, ...], cells: tuple[int, ...], members: ReplicaColumns
) -> Iterator[Row]:
    states = x.cells.states[x.cells.all[cells[0]].group]
    for resource, name in enumerate(problem.resources):
        amounts = members.amounts[:, resource]
        most = int(amounts.max(initial=0))
        largest = int(states.amounts[:, resource].max(initial=0))
        units = {1, *(largest // (per + 1) + 1 for per in range(1, x.params.max_replicas_per_node + 1))}
        if (amounts == most).all():  # true of none at all too, where `most` is 0 and no row is made
            units = {most}
        for unit in sorted(units):
            if not 0 < unit <= most:
                continue
            columns, coefficients, upper = [members.columns], [amounts // unit], 0
            by_state = states.floors(resource, unit)
            for cell in cells:
                constant, givers, given = x.cells.supply(cell, by_state)
                upper += constant
                columns.append(givers)
                coefficients.append(-given)
            yield row_of_arrays(
                "cpu_memory",
                (*key, name, unit),
                np.concatenate(columns),
                np.concatenate(coefficients),
                upper=upper,
            )
