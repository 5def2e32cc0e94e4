"""A packing of all nodes that another process makes while greedy plans (decision 0047)."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.improve.odd_shares import PACK_ENTRY, Packing, asks_for_odd_shares
from gpuplan.solvers.solver_child import is_small
from gpuplan.solvers.worker import start_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.incumbent import Limits

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def packing_ahead(
    problem: Problem, running: tuple[Placement, ...], limits: Limits, *, began: float, posed: float
) -> Iterator[Callable[[], Packing | None]]:
    """
    Begin to pack in another process; what this yields waits for the packing, and returns None without any.

    `posed` are the seconds in which the problem was built, which say how long a packing takes. It gets them
    also if the search should have ended before: greedy takes as long, and is not verified if the packing is
    better.
    """
    now = time.monotonic()
    least = limits.params.portfolio.packings_per_problem * posed
    deadline = max(now + least, began + limits.search_seconds)
    budget = limits.budget(deadline)
    with start_child(PACK_ENTRY, (problem, running, budget), budget.seconds) as child:

        def wait() -> Packing | None:
            ended = child.wait(lambda _: None)
            if ended.failure:
                # Greedy's plan is there, and an exact solver is asked next.
                _LOG.warning("phase=pack broke=there why=%s", ended.failure)
            return ended.last if isinstance(ended.last, Packing) else None

        yield wait


def packs_first(problem: Problem, limits: Limits) -> bool:
    """
    True if all nodes are packed by column generation before any exact solver; never for a small problem.

    Of odd shares the block model counts more than fits, so that its answers find no place, while a packing is
    mostly the optimum and is proven to be it. Many jobs of few kinds have a small model and a large packing.
    """
    if limits.deterministic or not limits.solvers:
        return False
    params = limits.params
    if not params.column_generation.enabled or problem.slots > 1 or not asks_for_odd_shares(problem):
        return False
    waiting = sum(len(one.jobs) for one in problem.classes if one.role is ClassRole.START)
    return waiting >= params.column_generation.many_jobs or not is_small(problem, params.exact.child)


def packs_ahead(problem: Problem, limits: Limits) -> bool:
    """
    True if plain jobs without guarantees are all there is to decide, and gain most by a packing.

    Greedy also stops and moves running jobs, opens nodes and reclaims guarantees, which a packing does not.
    """
    return not (problem.incumbents or problem.pools or problem.guarantees) and packs_first(problem, limits)
