"""
The pipeline of one stage: greedy finds a plan; exact solvers and neighbourhoods improve it in time.

    greedy → bound and rounded vertex of the linear relaxation → exact optimum of the block model
           → placed on nodes → verified → neighbourhoods, each solved exactly, until the time is up → verified

If most jobs ask for odd shares of GPUs, all nodes are packed right after greedy (decision 0046).
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.solution import DesiredState, StopReason
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.exact_run import ExactRun, TargetGapReachedError, last_bound
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts, start_firm_reservations
from gpuplan.solvers.improve.packing_ahead import packs_first
from gpuplan.solvers.incumbent import LAST_PLAN, NO_SOLVER, EpochSearch, Limits
from gpuplan.solvers.interface import Headroom
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from gpuplan.solvers.targets.warm_start import extend_last_plan
from gpuplan.solvers.worker import load_ahead, run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import Solution
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.incumbent import Check, Watch
    from gpuplan.solvers.shared_model import ModelPart

GREEDY: Final = "greedy"
LNS: Final = "neighbourhoods"
LNS_ENTRY: Final = "gpuplan.solvers.improve.large_neighbourhood:improve_by_lns"


def solve_stage(
    problem: Problem,
    running: tuple[Placement, ...],
    limits: Limits,
    check: Check,
    watch: Watch | None,
    *,
    began: float,
    keeps: Callable[[DesiredState], bool] | None = None,
    first: tuple[str, DesiredState] | None = None,
    start: DesiredState | None = None,
    start_by: str = GREEDY,
    start_bound: int | None = None,
    kept: tuple[str, DesiredState] | None = None,
    last: DesiredState | None = None,
    newcomers: frozenset[str] = frozenset(),
    settled: bool = False,
    exact: bool = True,
    enough: bool = False,
    part: ModelPart | None = None,
    ahead: bool = False,
    verifying: float = 0.0,
) -> Solution:
    """
    Solve one problem; unless `exact`, by greedy alone.

    `first` is a plan that breaks no rule, with its solver; it was made for fewer jobs, and all others are new
    to it. `start` is greedy's plan, which is not computed again then, or a better one `start_by` another
    solver; no plan gains more over no change than the `start_bound`. `kept` is a plan like `first` that is
    offered only if `start` is rejected, since the floors must be met. With `enough`, greedy does not run if
    the plan so far is proven to be the best. A plan that does not satisfy `keeps` is not offered. `part` is
    the part of a whole model that the problem is, if it is one. With `ahead` the worker loads what
    neighbourhoods need while the answer of the exact solver is placed. `verifying` are the seconds that
    a plan has already taken to verify: one that is known takes none.
    """
    search = EpochSearch(problem, running, limits, check, watch, began, keeps, part)
    search.verify_seconds = max(search.verify_seconds, verifying)
    if ahead and problem.slots == 1:
        search.load_next = partial(load_ahead, LNS_ENTRY)
    if settled:
        search.rest()
    elif last is not None:
        # Offered first, so that it is kept among equally good plans.
        offer_extended_plan(search, last, newcomers)
    if first is not None and problem.slots > 1:
        search.submit_plan(*first)
    elif first is not None:
        offer_extended_plan(search, first[1], _waiting(problem), name=first[0], exchanges=not enough)
    if problem.slots > 1 and not problem.firm_reservations:
        with search.phase("hold"):
            search.problem = reserve_promised_starts(problem, limits.params.placement)
    search.greedy_objective = search.objective
    try:
        # A plan of greedy that is known takes no time.
        if start is None and must_keep_last_plan(search):
            search.ended = StopReason.SETTLED if settled else StopReason.TIME
            return _bounded(search, wanted=not enough)
        planned = _offer_start(search, start, kept, by=start_by, bound=start_bound)
        if not (planned or settled) and exact and _is_large(search):
            _plan_large(search)
            return _bounded(search, wanted=not enough)
        again = (first is None or problem.slots == 1) and not (enough and search.proven)
        if not (planned or settled) and again:
            _run_greedy(search)
        if exact and not search.proven:
            _run_improvers(search)
    except KeyboardInterrupt:
        if search.best.solver == NO_SOLVER:
            raise
        search.ended = StopReason.INTERRUPTED
    return _bounded(search, wanted=not enough, exact=exact)


def _bounded(search: EpochSearch, *, wanted: bool, exact: bool = True) -> Solution:
    """
    The result; with a bound from multipliers, if no solver had the time to report any.

    Where that takes long, an interrupted search goes without, and Ctrl-C ends it with the plan that there is.
    """
    limits, exempt = search.limits, search.limits.deterministic
    # The last of several stages runs without exact solvers only after an interruption.
    if search.ended is StopReason.INTERRUPTED or not exact:
        exempt = limits.bounds_apart or len(search.problem.nodes) >= limits.params.portfolio.many_nodes
    if wanted and not (exempt or search.has_dual_bound or search.proven):
        with search.phase("bound"), suppress(KeyboardInterrupt):
            search.add_bound("multipliers", last_bound(search))
    return search.solution()


def _offer_start(
    search: EpochSearch,
    start: DesiredState | None,
    kept: tuple[str, DesiredState] | None,
    *,
    by: str = GREEDY,
    bound: int | None = None,
) -> bool:
    """
    Offer greedy's plan; if there is none, or it is rejected, a plan that is known to meet the floors.

    False if greedy must plan again: there is no plan of it, or it breaks a rule.
    """
    known = start is not None
    search.add_bound(by, None if bound is None else search.unchanged_objective + bound)
    if start is not None and search.keeps(start):
        if search.submit_plan(by, start):
            search.greedy_objective = search.judged
            return True
        known = False
    if kept is not None and search.best.solver == NO_SOLVER:
        offer_extended_plan(search, kept[1], _waiting(search.problem), name=kept[0])
    search.greedy_objective = search.objective
    return known


def _is_large(search: EpochSearch) -> bool:
    """True if a solver should begin while greedy plans."""
    many = len(search.problem.nodes) >= search.limits.params.portfolio.many_nodes
    return many and bool(search.limits.solvers) and search.left > 0 and not _packs_first(search)


def _waiting(problem: Problem) -> frozenset[str]:
    return frozenset(name for one in problem.classes if one.role is ClassRole.START for name in one.jobs)


def offer_extended_plan(
    search: EpochSearch,
    last: DesiredState,
    newcomers: frozenset[str],
    name: str = LAST_PLAN,
    *,
    exchanges: bool = False,
) -> None:
    """Offer the last plan with newcomers in it, or as it is if that is not possible."""
    with search.phase("carry on"):
        target = extend_last_plan(
            search.problem,
            search.running,
            last,
            newcomers,
            search.limits.params.placement,
            exchanges=exchanges,
            deadline=None if search.limits.deterministic else search.deadline,
        )
    if target is None or not search.keeps(target) or not search.submit_plan(name, target):
        search.submit_plan(name, last)


def must_keep_last_plan(search: EpochSearch) -> bool:
    """True if the last plan can be continued and there is no time to look for a better one."""
    has_plan = search.best.solver == LAST_PLAN and not search.limits.deterministic
    greedy_seconds = search.limits.params.portfolio.verifications_per_greedy * search.verify_seconds
    return has_plan and search.left < greedy_seconds


def _run_greedy(search: EpochSearch) -> None:
    """Offer greedy's plan."""
    search.record_milestone(GREEDY)
    params = search.limits.params.placement
    with search.phase("greedy"):
        deadline = None if search.limits.deterministic else search.deadline
        ledger = greedy(search.problem, deadline=deadline, thorough=not search.limits.solvers, params=params)
    target = target_of(ledger, search.running)
    if not search.keeps(target):
        # It takes from higher priorities what they have by now, so it is no reference.
        search.greedy_objective = search.objective
        return
    if not search.submit_plan(GREEDY, target):
        # Fall back to promised starts, then to whatever fits: these hold whatever else went wrong.
        kept = Ledger(search.problem, params)
        start_firm_reservations(kept)
        if search.problem.firm_reservations:
            search.submit_plan(GREEDY, target_of(kept, search.running))
        fill_free_capacity(kept)
        search.submit_plan(GREEDY, target_of(kept, search.running))
        search.greedy_objective = search.objective
        return
    search.greedy_objective = search.unchanged_objective + ledger.objective


def _run_improvers(search: EpochSearch) -> None:
    """Get a bound; try the exact solvers in turn until one answers; then refine the best plan."""
    limits = search.limits
    if _packs_first(search):
        # Packing brings a bound of its own, unless running jobs or new nodes are to be decided too.
        problem = search.problem
        bounds = not (problem.incumbents or problem.pools)
        _run_lns(search, search.deadline_with_bound if bounds else search.deadline)
    if search.proven or _is_out_of_time(search):
        return
    if not limits.solvers or search.ended is StopReason.SETTLED:
        ExactRun(search, None).run()
        for solver in limits.solvers[:1] if not search.proven else ():
            # A small problem is soon proven.
            ExactRun(search, solver, relax=False).run()
        return
    _run_exact_solvers(search, limits.solvers, relax=True)
    if not search.proven:
        _run_lns(search)


def _packs_first(search: EpochSearch) -> bool:
    return search.ended is not StopReason.SETTLED and packs_first(search.problem, search.limits)


def _run_exact_solvers(search: EpochSearch, solvers: tuple[str, ...], *, relax: bool) -> None:
    """Run solvers in turn until one answers; none that has little time beside the one before it."""
    limits, least = search.limits, 0.0
    for solver in solvers:
        if search.left <= least:
            return
        began, inquiry = time.monotonic(), ExactRun(search, solver, relax=relax)
        if inquiry.run() or search.proven:
            return
        if not limits.deterministic:
            least = limits.params.portfolio.share_of_next_solver * (time.monotonic() - began)
        relax = not inquiry.relaxed


def _plan_large(search: EpochSearch) -> None:
    """Begin the first solver while greedy plans, since building the model alone takes as long."""
    inquiry = ExactRun(search, search.limits.solvers[0])
    with inquiry.begun() as child:
        _run_greedy(search)
        if _is_out_of_time(search):
            return
        outcome = None if search.proven else inquiry.outcome_of(child)
    # The answer is placed when the worker is free for the next question.
    if outcome is not None and not inquiry.judge(outcome):
        _run_exact_solvers(search, search.limits.solvers[1:], relax=not inquiry.relaxed)
    if not search.proven:
        _run_lns(search)


def _is_out_of_time(search: EpochSearch) -> bool:
    """True, and recorded, if there is no time for more than greedy's plan."""
    limits = search.limits
    if search.left > 0:
        return False
    search.ended = StopReason.TIME
    if search.best.solver != LNS:
        search.failures += [
            (solver, f"no time left of {limits.seconds_text}") for solver in limits.solvers[:1]
        ]
    return True


def _run_lns(search: EpochSearch, deadline: float | None = None) -> None:
    """Improve the best plan by neighbourhoods, in a process that can be killed, by default until the end."""
    limits = search.limits
    if search.problem.slots > 1:
        return
    deadline = search.deadline if deadline is None else deadline
    if deadline - time.monotonic() <= search.verify_seconds:
        search.ended = StopReason.TIME
        return
    budget, checks = limits.budget(deadline), limits.params.portfolio.verifications_per_report
    begun_at, newest = search.objective, list[DesiredState]()
    asked = search.best.solver in limits.solvers
    solver = search.best.solver if asked else LNS

    def listen(message: object) -> None:
        if isinstance(message, DesiredState):
            newest[:] = [message]
        elif isinstance(message, Headroom):
            search.add_bound("refinement", begun_at + message.points)
        search.record_milestone(LNS)
        # Intermediate plans are checked only if there is time for another check at the end.
        spare = budget.deadline - time.monotonic() > checks * search.verify_seconds
        if newest and not limits.deterministic and spare:
            search.submit_plan(solver, newest.pop(), stage=LNS)
        if not limits.deterministic and search.proven:
            raise TargetGapReachedError

    def refine() -> str:
        """Why the process failed by itself, if it did."""
        arguments = (search.problem, search.running, search.best.target, budget)
        outcome = run_in_child(LNS_ENTRY, arguments, budget.seconds, listen)
        late = outcome.killed or time.monotonic() >= budget.deadline
        rested = StopReason.TICKS if limits.deterministic else StopReason.EXHAUSTED
        search.ended = StopReason.TIME if late else rested
        return outcome.failure

    with search.phase("refine"), suppress(TargetGapReachedError):
        # A process that ran out of memory, or was killed, may get further the second time.
        failure = refine()
        if failure and search.ended is not StopReason.TIME:
            failure = refine()
        if failure:
            search.failures.append((LNS, failure))
    if newest:
        search.submit_plan(solver, newest.pop(), stage=LNS)
