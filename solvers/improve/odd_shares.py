"""
Shares of GPUs that do not divide a GPU.

The block model counts more of them than fit, so that its answers find no place, while a packing is mostly the
optimum and is proven to be it (decisions 0046 and 0047).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.problem import Problem

PACK_ENTRY: Final = "gpuplan.solvers.improve.packing_by_priority:pack_by_priority"


@dataclass(frozen=True, slots=True)
class Packing:
    """A plan in which all nodes are packed."""

    target: DesiredState
    proven: tuple[int, ...]
    """Priorities for which no plan is better that brings the higher ones as much."""
    bound: int | None
    """Upper bound on the gain of plans that bring all priorities but the last as much; None if unknown."""


def asks_for_odd_shares(problem: Problem) -> bool:
    """True if most waiting jobs ask for a share that does not divide a GPU: the block model is loose."""
    waiting = [each for each in problem.classes if each.role is ClassRole.START]
    odd = sum(len(each.jobs) for each in waiting if MILLI % max(1, each.shape.gpu_milli))
    return 2 * odd > sum(len(each.jobs) for each in waiting)
