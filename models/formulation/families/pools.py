"""(C11) Pools."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.formulation.rows import Term
    from gpuplan.models.problem.problem import Problem


def pools(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    A node is removed only if it is empty, and a pool stays between its minimum and its maximum.

        close[p]  ≤  idle_p + Σ_{o empties a node of p} out[o]    ∀ sets p of equal nodes
        Σ_{p of the pool} close[p] − Σ_{p of the pool} open[p]  ≤  spare  ∀ pools above their minimum by spare
        Σ_{p of the pool} open[p]  ≤  nodes that may still be added    ∀ pools

    A removed node takes its capacity with it in (C3), (C4) and (C5); equal nodes are interchangeable there.
    """
    closed: dict[int, list[Term]] = defaultdict(list)
    opened: dict[int, list[Term]] = defaultdict(list)
    for number, closing in enumerate(x.cells.reductions):
        closed[closing.pool].append((closing.column, 1))
        emptied = [(column, -1) for _, column in closing.emptied]
        if emptied:
            empty = [(closing.column, 1), *emptied]
            yield row("pools", ("empty", number), empty, upper=len(closing.idle))
    for opening in x.cells.expansions:
        opened[opening.pool].append((opening.column, -1))
    for pool, option in enumerate(problem.pools):
        if closed[pool]:
            yield row("pools", (option.name, "min"), [*closed[pool], *opened[pool]], upper=option.most_closed)
        if len(opened[pool]) > 1:
            most = [(column, 1) for column, _ in opened[pool]]
            yield row("pools", (option.name, "max"), most, upper=len(option.nodes))
