"""Shares of GPUs that do not divide a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem


def asks_for_odd_shares(problem: Problem) -> bool:
    """True if most waiting jobs ask for a share that does not divide a GPU: the block model is loose."""
    waiting = [each for each in problem.classes if each.role is ClassRole.START]
    odd = sum(len(each.jobs) for each in waiting if MILLI % max(1, each.shape.gpu_milli))
    return 2 * odd > sum(len(each.jobs) for each in waiting)
