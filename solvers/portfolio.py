"""
The solver pipeline: greedy always finds a plan; exact solvers and neighbourhoods improve it in time.

    greedy → bound and rounded vertex of the linear relaxation → exact optimum of the block model
           → placed on nodes → verified → neighbourhoods, each solved exactly, until the time is up → verified

The best verified plan wins, whatever solver made it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.desired_state import DesiredState
from gpuplan.models.plan.solution import SolveStatus, Stage, StopReason
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.exact_run import ExactRun, TargetGapReachedError
from gpuplan.solvers.heuristics.greedy import greedy, greedy_by_priority
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts, start_firm_reservations
from gpuplan.solvers.incumbent import LAST_PLAN, NO_SOLVER, EpochSearch, Limits
from gpuplan.solvers.interface import Headroom
from gpuplan.solvers.priority_stages import PriorityResults, stage_problem, verifier_of_stage
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.warm_start import extend_last_plan
from gpuplan.solvers.worker import run_in_child

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import Solution
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.incumbent import Check, Watch

GREEDY: Final = "greedy"
LNS: Final = "neighbourhoods"
LNS_ENTRY: Final = "gpuplan.solvers.improve.large_neighbourhood:improve_by_lns"

__all__ = ["Limits", "solve"]


def solve(
    problem: Problem,
    running: tuple[Placement, ...],
    limits: Limits,
    check: Check,
    watch: Watch | None = None,
    *,
    began: float | None = None,
    warm: DesiredState | None = None,
    newcomers: frozenset[str] = frozenset(),
    settled: bool = False,
) -> Solution:
    """
    Solve a problem within limits; `check` is the verifier on the epoch's snapshot and policy.

    The plan is never worse than greedy's (than `warm` if time is short), nor than changing nothing. It is
    never later than the limit by more than the time to place, verify and clean up, whatever an exact solver
    does. The bound is the least that was proven: at worst the problem's ceiling. `watch` gets the progress of
    the search. Once there is a plan, an interruption (KeyboardInterrupt) ends the search with it; a second
    one is passed on. Time counts from the instant (of `time.monotonic`) at which the epoch `began`, so it
    includes building the problem; without it from now.

    `warm` is a plan to begin with, extended by jobs that are `newcomers` to it. It is kept among equally good
    plans. If there is no time to look for a better one, nothing else is done. If all is `settled`, everything
    stays as it is, and only the bound is computed.
    """
    began = time.monotonic() if began is None else began
    if settled or len(problem.priorities) < 2:
        return _solve_stage(
            problem,
            running,
            limits,
            check,
            watch,
            began=began,
            last=warm,
            newcomers=newcomers,
            settled=settled,
        )
    return _TieredSolve(problem, running, limits, check, watch, began).run(warm, newcomers)


class _TieredSolve:
    """
    Plan one priority after the other, the highest first; what each earns is a floor for all later stages.

    While greedy's plan is proven to be the best for a priority, no exact solver runs. If later starts are
    planned, or time is short, greedy's plan is the floor.
    """

    def __init__(
        self,
        problem: Problem,
        running: tuple[Placement, ...],
        limits: Limits,
        check: Check,
        watch: Watch | None,
        began: float,
    ) -> None:
        params = limits.params.placement
        self._problem = reserve_promised_starts(problem, params) if problem.slots > 1 else problem
        self._running, self._limits, self._check, self._watch = running, limits, check, watch
        self._began = began
        self._served = PriorityResults(self._problem, running)
        self._floors: dict[int, int] = {}
        self._first: tuple[str, DesiredState] | None = None
        """The plan of the last stage and its solver; None while greedy's plans are the best."""
        self._greedy: dict[int, DesiredState] = {}
        """Greedy's plan after the turn of each priority."""
        self._kept: tuple[str, DesiredState] | None = None
        """The last verified plan and its solver; it meets all floors so far."""
        self._stages: list[Stage] = []

    def run(self, warm: DesiredState | None, newcomers: frozenset[str]) -> Solution:
        """The best plan that keeps the order of priorities."""
        if warm is not None and (hurried := self._hurried(warm, newcomers)) is not None:
            return hurried
        priorities = self._problem.priorities
        foreseen = self._foreseen() if self._problem.slots > 1 else None
        if foreseen is None:
            self._greedy = self._by_turns()
        for number, priority in enumerate(priorities[:-1]):
            left = self._began + self._limits.seconds - time.monotonic()
            if left <= 0 and not self._limits.deterministic:
                if foreseen is None:
                    break
                self._floors[priority] = foreseen.get(priority, 0)
                self._stages.append(Stage(priority, self._floors[priority], proven=False))
                continue
            seconds, exact = (
                max(0.0, left / (len(priorities) - number + 1)),
                (number < self._limits.params.portfolio.max_stages),
            )
            self._take(priority, seconds, foreseen, exact=exact)
        problem = replace(self._problem, floors=tuple(self._floors.items()))
        solution = _solve_stage(
            problem,
            self._running,
            self._limits,
            self._check,
            self._watch,
            served=self._served,
            began=self._began,
            first=self._first,
            start=self._start_of(priorities[-1]),
            kept=self._kept,
            last=warm,
            newcomers=newcomers,
        )
        stages = tuple(self._stages)
        if all(each.proven for each in stages):
            return replace(solution, stages=stages)
        ended = StopReason.EXHAUSTED if solution.ended is StopReason.PROVEN else solution.ended
        return replace(solution, stages=stages, status=SolveStatus.FEASIBLE, ended=ended)

    @property
    def _deadline(self) -> float | None:
        """Deadline of greedy; None if the clock decides nothing."""
        return None if self._limits.deterministic else self._began + self._limits.seconds

    def _hurried(self, warm: DesiredState, newcomers: frozenset[str]) -> Solution | None:
        """The last plan carried on, if there is no time to look for a better one; None if there is."""
        search = EpochSearch(
            self._problem, self._running, self._limits, self._check, self._watch, self._began
        )
        _offer_extended_plan(search, warm, newcomers)
        if not _must_keep_last_plan(search):
            return None
        search.greedy_objective, search.ended = search.objective, StopReason.TIME
        return search.solution()

    def _foreseen(self) -> dict[int, int]:
        """Points of each priority in greedy's plan with later starts: floors of all stages."""
        ledger = greedy(
            self._problem,
            deadline=self._deadline,
            thorough=not self._limits.solvers,
            params=self._limits.params.placement,
        )
        target = ledger.target(self._running)
        if self._check(target).violations:
            # No plan may meet the floors of a plan that breaks a rule.
            return {}
        self._first = GREEDY, target
        return dict(ledger.served)

    def _by_turns(self) -> dict[int, DesiredState]:
        """Greedy's plans of all stages."""
        return greedy_by_priority(
            self._problem,
            self._running,
            deadline=self._deadline,
            thorough=not self._limits.solvers,
            params=self._limits.params.placement,
        )

    def _start_of(self, priority: int) -> DesiredState | None:
        """Greedy's plan of a stage, while no earlier stage has a better one."""
        return self._greedy.get(priority) if self._first is None else None

    def _take(self, priority: int, seconds: float, foreseen: dict[int, int] | None, *, exact: bool) -> None:
        """Plan one stage; where floors are `foreseen`, only find out whether there is a better plan."""
        problem = replace(self._problem, floors=tuple(self._floors.items()))
        asked = stage_problem(problem, priority)
        solution = _solve_stage(
            asked,
            self._running,
            replace(self._limits, seconds=seconds),
            verifier_of_stage(self._check, self._served, asked),
            None,
            served=self._served,
            began=time.monotonic(),
            first=self._first if foreseen is None else None,
            start=self._start_of(priority),
            kept=self._kept,
            exact=exact,
            enough=True,
        )
        if solution.solver != NO_SOLVER:
            self._kept = solution.solver, solution.target
        points = self._served.points(solution.target)
        proven = solution.status is SolveStatus.OPTIMAL
        if foreseen is not None:
            as_greedy = solution.objective == solution.greedy_objective
            proven = proven and as_greedy and points[priority] <= foreseen.get(priority, 0)
            self._floors[priority] = foreseen.get(priority, 0)
        else:
            if solution.solver != NO_SOLVER and solution.target != self._start_of(priority):
                self._first = solution.solver, solution.target
            self._floors |= {each: points[each] for each in self._problem.priorities if each >= priority}
        self._stages.append(Stage(priority, self._floors[priority], proven=proven))


def _solve_stage(
    problem: Problem,
    running: tuple[Placement, ...],
    limits: Limits,
    check: Check,
    watch: Watch | None,
    *,
    began: float,
    served: PriorityResults | None = None,
    first: tuple[str, DesiredState] | None = None,
    start: DesiredState | None = None,
    kept: tuple[str, DesiredState] | None = None,
    last: DesiredState | None = None,
    newcomers: frozenset[str] = frozenset(),
    settled: bool = False,
    exact: bool = True,
    enough: bool = False,
) -> Solution:
    """
    Solve one problem; unless `exact`, by greedy alone.

    `first` is a plan that breaks no rule, with its solver; it was made for fewer jobs, and all others are new
    to it. `start` is greedy's plan, which is not computed again then. `kept` is a plan like `first` that is
    offered only if `start` is rejected, since the floors must be met. With `enough`, greedy does not run if
    the plan so far is proven to be the best.
    """
    keeps = None if served is None else partial(served.keeps, problem=problem)
    search = EpochSearch(problem, running, limits, check, watch, began, keeps)
    if settled:
        search.rest()
    elif last is not None:
        # Offered first, so that it is kept among equally good plans.
        _offer_extended_plan(search, last, newcomers)
    if first is not None and problem.slots > 1:
        search.submit_plan(*first)
    elif first is not None:
        _offer_extended_plan(search, first[1], _waiting(problem), name=first[0])
    if problem.slots > 1 and not problem.bookings:
        with search.phase("hold"):
            search.problem = reserve_promised_starts(problem, limits.params.placement)
    search.greedy_objective = search.objective
    try:
        if _must_keep_last_plan(search):
            search.ended = StopReason.SETTLED if settled else StopReason.TIME
            return search.solution()
        planned = _offer_start(search, start, kept)
        if not (planned or settled) and exact and _is_large(search):
            _plan_large(search)
            return search.solution()
        again = (first is None or problem.slots == 1) and not (enough and search.proven)
        if not (planned or settled) and again:
            _run_greedy(search)
        if exact and not search.proven:
            _run_improvers(search)
    except KeyboardInterrupt:
        if search.best.solver == NO_SOLVER:
            raise
        search.ended = StopReason.INTERRUPTED
    return search.solution()


def _offer_start(
    search: EpochSearch, start: DesiredState | None, kept: tuple[str, DesiredState] | None
) -> bool:
    """Offer greedy's plan; if there is none, or it is rejected, a plan that is known to meet the floors."""
    if start is not None and search.keeps(start) and search.submit_plan(GREEDY, start):
        search.greedy_objective = search.judged
        return True
    if kept is not None and search.best.solver == NO_SOLVER:
        _offer_extended_plan(search, kept[1], _waiting(search.problem), name=kept[0])
        search.greedy_objective = search.objective
    return False


def _is_large(search: EpochSearch) -> bool:
    """True if a solver should begin while greedy plans."""
    many = len(search.problem.nodes) >= search.limits.params.portfolio.many_nodes
    return many and bool(search.limits.solvers) and search.left > 0


def _waiting(problem: Problem) -> frozenset[str]:
    return frozenset(name for one in problem.classes if one.role is ClassRole.START for name in one.jobs)


def _offer_extended_plan(
    search: EpochSearch, last: DesiredState, newcomers: frozenset[str], name: str = LAST_PLAN
) -> None:
    """Offer the last plan with newcomers in it, or as it is if that is not possible."""
    with search.phase("carry on"):
        target = extend_last_plan(
            search.problem, search.running, last, newcomers, search.limits.params.placement
        )
    if target is None or not search.keeps(target) or not search.submit_plan(name, target):
        search.submit_plan(name, last)


def _must_keep_last_plan(search: EpochSearch) -> bool:
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
    target = ledger.target(search.running)
    if not search.keeps(target):
        # It takes from higher priorities what they have by now, so it is no reference.
        search.greedy_objective = search.objective
        return
    if not search.submit_plan(GREEDY, target):
        # Fall back to promised starts, then to whatever fits: these hold whatever else went wrong.
        kept = Ledger(search.problem, params)
        start_firm_reservations(kept)
        if search.problem.bookings:
            search.submit_plan(GREEDY, kept.target(search.running))
        fill_free_capacity(kept)
        search.submit_plan(GREEDY, kept.target(search.running))
        search.greedy_objective = search.objective
        return
    search.greedy_objective = search.unchanged_objective + ledger.objective


def _run_improvers(search: EpochSearch) -> None:
    """Get a bound; try the exact solvers in turn until one answers; then refine the best plan."""
    limits = search.limits
    if _is_out_of_time(search):
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


def _run_exact_solvers(search: EpochSearch, solvers: tuple[str, ...], *, relax: bool) -> None:
    """Run solvers in turn until one answers."""
    for solver in solvers:
        if search.left <= 0:
            return
        inquiry = ExactRun(search, solver, relax=relax)
        if inquiry.run() or search.proven:
            return
        relax = not inquiry.relaxed


def _plan_large(search: EpochSearch) -> None:
    """Begin the first solver while greedy plans, since building the model alone takes as long."""
    inquiry = ExactRun(search, search.limits.solvers[0])
    with inquiry.begun() as child:
        _run_greedy(search)
        if _is_out_of_time(search):
            return
        answered = search.proven or inquiry.ended(child)
    if not answered:
        _run_exact_solvers(search, search.limits.solvers[1:], relax=not inquiry.relaxed)
    if not search.proven:
        _run_lns(search)


def _is_out_of_time(search: EpochSearch) -> bool:
    """True, and recorded, if there is no time for more than greedy's plan."""
    limits = search.limits
    if search.left > 0:
        return False
    search.ended = StopReason.TIME
    search.failures += [(solver, f"no time left of {limits.seconds:g} s") for solver in limits.solvers[:1]]
    return True


def _run_lns(search: EpochSearch) -> None:
    """Improve the best plan by neighbourhoods, in a process that can be killed."""
    limits = search.limits
    if search.problem.slots > 1:
        return
    if search.left <= search.verify_seconds:
        search.ended = StopReason.TIME
        return
    budget, checks = limits.budget(search.deadline), limits.params.portfolio.verifications_per_report
    begun_at, newest = search.best.objective, list[DesiredState]()
    asked = search.best.solver in limits.solvers
    solver = search.best.solver if asked else LNS

    def listen(message: object) -> None:
        if isinstance(message, DesiredState):
            newest[:] = [message]
        elif isinstance(message, Headroom):
            search.add_bound("configurations", begun_at + message.points)
        search.record_milestone(LNS)
        # Intermediate plans are checked only if there is time for another check at the end.
        spare = budget.deadline - time.monotonic() > checks * search.verify_seconds
        if newest and not limits.deterministic and spare:
            search.submit_plan(solver, newest.pop(), stage=LNS)
        if not limits.deterministic and search.proven:
            raise TargetGapReachedError

    with search.phase("refine"), suppress(TargetGapReachedError):
        arguments = (search.problem, search.running, search.best.target, budget)
        outcome = run_in_child(LNS_ENTRY, arguments, budget.seconds, listen)
        late = outcome.killed or time.monotonic() >= budget.deadline
        rested = StopReason.TICKS if limits.deterministic else StopReason.EXHAUSTED
        search.ended = StopReason.TIME if late or search.ended is StopReason.TIME else rested
        if outcome.failure:
            search.failures.append((LNS, outcome.failure))
    if newest:
        search.submit_plan(solver, newest.pop(), stage=LNS)
