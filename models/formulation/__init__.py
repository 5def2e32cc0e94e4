"""The block model of docs/formulation.md in code: `formulate` is its table of contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation.assignment import assignment
from gpuplan.models.formulation.compute import compute
from gpuplan.models.formulation.eviction import eviction
from gpuplan.models.formulation.fragmentation import fragmentation
from gpuplan.models.formulation.gang import gang
from gpuplan.models.formulation.gathering import gatherings
from gpuplan.models.formulation.guarantees import guarantees
from gpuplan.models.formulation.horizon import horizon
from gpuplan.models.formulation.locality import locality
from gpuplan.models.formulation.mig import mig
from gpuplan.models.formulation.objective import objective
from gpuplan.models.formulation.pools import pools
from gpuplan.models.formulation.power import power
from gpuplan.models.formulation.preemption import preemption
from gpuplan.models.formulation.priority import priority
from gpuplan.models.formulation.queues import queues
from gpuplan.models.formulation.rows import Formulation, Row
from gpuplan.models.formulation.sharing import sharing
from gpuplan.models.formulation.staircase import staircase
from gpuplan.models.formulation.stranding import stranding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.problem import Problem

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
