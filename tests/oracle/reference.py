"""
The plain (job, node, GPU, MIG placement) model: every decision spelled out, for small cases only.

It states the rules as the verifier does, node by node and GPU by GPU, so that a target breaks a row of a
family exactly when the verifier reports the rule of that name, and its objective there is the verifier's. It
grows with jobs times GPUs: 10K GPUs are out of its reach (docs/decisions/0001).

Two rules have no rows of their own name or not all of them. `eviction` has them for incumbents; other running
jobs have no columns. `order` is no matter of sums: moves that only wait for each other satisfy every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation.rows import Formulation, Row
from tests.oracle import capacity, jobs
from tests.oracle import objective as terms
from tests.oracle.columns import ReferenceColumns
from tests.oracle.disruption_budget import disruption_budget
from tests.oracle.preemption import preemption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.problem.problem import Problem

__all__ = ["FAMILIES", "MEANINGS", "ReferenceColumns", "reference"]

FAMILIES: Final[tuple[Callable[[Problem, ReferenceColumns], Iterator[Row]], ...]] = (
    jobs.assignment,
    jobs.eviction,
    jobs.gang,
    jobs.request,
    jobs.selection,
    jobs.locality,
    jobs.spread,
    preemption,
    disruption_budget,
    jobs.anti_affinity,
    capacity.gpus,
    capacity.mig,
    capacity.cpu_memory,
    capacity.power,
    capacity.quota,
    capacity.pools,
)
"""The rules."""

MEANINGS: Final[tuple[Callable[[Problem, ReferenceColumns], Iterator[Row]], ...]] = (
    jobs.presence,
    terms.drain,
    terms.guarantee,
    terms.interference,
    terms.fragmentation,
    terms.scaling,
)
"""What columns of the objective count; no legal target breaks them."""


def reference(problem: Problem, x: ReferenceColumns) -> Formulation:
    """The plain model of a problem."""
    points, constant = terms.objective(problem, x)
    return Formulation(
        upper=np.array(x.upper, dtype=np.int64),
        objective=points,
        rows=tuple(row for family in (*FAMILIES, *MEANINGS) for row in family(problem, x)),
        constant=constant,
    )
