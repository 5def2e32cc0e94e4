"""(C8) Guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.formulation.rows import Row, row
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.problem.problem import Problem


def guarantees(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    The part of a guarantee that a queue is entitled to and does not get is missing, in whole GPUs.

        Σ_{q below g} ( own_rq + placed[r,q] − left[r,q] )  +  1000 · missing[g]  ≥  owed_g    ∀ guarantees g

    owed_g is min(guarantee, demand) of resource r in the queue and all queues below it; placed and left are
    the sums of (C7), here regardless of what a queue does not lend.
    """
    for index, column in x.missing.items():
        guarantee = problem.guarantees[index]
        usage = x.usage(guarantee.resource)
        terms = [term for queue in guarantee.queues for term in usage[queue]]
        owed = guarantee.owed - guarantee.own
        yield row("guarantees", (index,), [*terms, (column, MILLI)], lower=owed)
