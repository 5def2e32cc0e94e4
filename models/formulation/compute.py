"""(C5) CPU, memory and other countable resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.models.formulation.rows import Row, dense

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.problem import Problem

MOST_PER_NODE: Final = 8
"""Rows for replicas of which at most this many fit the freest node; smaller ones are left to the total."""


def compute(problem: Problem, x: Columns) -> Iterator[Row]:
    """
    Countable resources suffice, in total and for replicas that are large for a node.

        Σ_i ⌊a_ir/u⌋ · replicas[i,t]   ≤   Σ_{n ∈ t} ⌊free_nr/u⌋        ∀ t, resources r, units u

    u = 1 is the total. u = ⌊C/(k+1)⌋ + 1 for k = 1…8, with C the largest free amount on a node of the group,
    says that of replicas larger than C/(k+1) at most k fit one node.
    """
    for group, placed in x.group.items():
        capacity = x.capacity[group]
        for resource, name in enumerate(problem.resources):
            amounts = placed.amounts[:, resource]
            most = int(amounts.max(initial=0))
            largest = capacity.largest(resource)
            for unit in sorted({1, *(largest // (per + 1) + 1 for per in range(1, MOST_PER_NODE + 1))}):
                if unit <= most:
                    yield dense(
                        "compute",
                        (group, name, unit),
                        placed.columns,
                        amounts // unit,
                        upper=capacity.floors(resource, unit),
                    )
