"""The block model of docs/formulation.md in code: `formulate` is its table of contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from planner.models.formulation.assignment import assignment
from planner.models.formulation.compute import compute
from planner.models.formulation.eviction import eviction
from planner.models.formulation.fragmentation import fragmentation
from planner.models.formulation.gang import gang
from planner.models.formulation.gathering import gatherings
from planner.models.formulation.guarantees import guarantees
from planner.models.formulation.horizon import horizon
from planner.models.formulation.locality import locality
from planner.models.formulation.mig import mig
from planner.models.formulation.objective import objective
from planner.models.formulation.pools import pools
from planner.models.formulation.power import power
from planner.models.formulation.preemption import preemption
from planner.models.formulation.priority import priority
from planner.models.formulation.queues import queues
from planner.models.formulation.rows import Formulation, Row
from planner.models.formulation.sharing import sharing
from planner.models.formulation.staircase import staircase
from planner.models.formulation.stranding import stranding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.models.formulation.columns import Columns
    from planner.models.problem import Problem

FAMILIES: Final[tuple[Callable[[Problem, Columns], Iterator[Row]], ...]] = (
    assignment,
    gang,
    staircase,
    sharing,
    compute,
    stranding,
    mig,
    queues,
    guarantees,
    locality,
    eviction,
    preemption,
    pools,
    fragmentation,
    power,
    horizon,
    priority,
)
"""The model, in reading order."""


def formulate(problem: Problem, x: Columns) -> Formulation:
    """The whole model: maximize the objective subject to every row of every family."""
    return Formulation(
        upper=np.array(x.upper, dtype=np.int64),
        objective=objective(problem, x),
        rows=tuple(row for family in FAMILIES for row in family(problem, x)),
        now=tuple(x.jobs.values()),
        later=tuple(x.later.starts.values()),
        gatherings=tuple(gatherings(problem, x)),
    )
