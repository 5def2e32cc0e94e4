"""The MILP model of docs/formulation.md in code; `formulate` lists its constraint families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gpuplan.models.formulation.cuts.gang_cover import gang_covers
from gpuplan.models.formulation.cuts.quota_cover import quota_covers
from gpuplan.models.formulation.cuts.stranded_gpu import stranded_gpu
from gpuplan.models.formulation.families.assignment import assignment
from gpuplan.models.formulation.families.cpu_memory import cpu_memory
from gpuplan.models.formulation.families.disruption_budget import disruption_budget
from gpuplan.models.formulation.families.eviction import eviction
from gpuplan.models.formulation.families.fractional_gpu import fractional_gpu
from gpuplan.models.formulation.families.fragmentation import fragmentation
from gpuplan.models.formulation.families.gang import gang
from gpuplan.models.formulation.families.gpu_capacity import gpu_capacity
from gpuplan.models.formulation.families.locality import locality
from gpuplan.models.formulation.families.mig import mig
from gpuplan.models.formulation.families.pools import pools
from gpuplan.models.formulation.families.power import power
from gpuplan.models.formulation.families.preemption import preemption
from gpuplan.models.formulation.families.quota import guarantees, quota
from gpuplan.models.formulation.objective import objective
from gpuplan.models.formulation.priority import priority
from gpuplan.models.formulation.rows import Formulation, Row
from gpuplan.models.formulation.time_indexed.horizon import horizon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.columns import Columns
    from gpuplan.models.problem.problem import Problem

FAMILIES: Final[tuple[Callable[[Problem, Columns], Iterator[Row]], ...]] = (
    assignment,
    gang,
    gpu_capacity,
    fractional_gpu,
    cpu_memory,
    stranded_gpu,
    mig,
    quota,
    guarantees,
    locality,
    eviction,
    preemption,
    disruption_budget,
    pools,
    fragmentation,
    power,
    horizon,
    priority,
)
"""The constraint families, in reading order."""


def formulate(problem: Problem, x: Columns) -> Formulation:
    """Build the whole model: maximize the objective subject to all rows of all families."""
    return Formulation(
        upper=np.array(x.upper, dtype=np.int64),
        objective=objective(problem, x),
        rows=tuple(row for family in FAMILIES for row in family(problem, x)),
        now=tuple(x.jobs.values()),
        later=tuple(x.later.starts.values()),
        gang_covers=tuple(gang_covers(problem, x)),
        quota_covers=tuple(quota_covers(problem, x)),
    )
