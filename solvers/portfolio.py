"""
The portfolio of solvers, asked for one priority after the other.

Each stage is a run of the pipeline (`solvers/pipeline.py`): greedy always finds a plan, and exact solvers and
neighbourhoods improve it in time. The best verified plan wins, whatever solver made it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.models.plan.solution import SolveStatus, Stage, StopReason
from gpuplan.solvers.exact_run import SOLVE_ENTRY
from gpuplan.solvers.heuristics.greedy import greedy, greedy_by_priority
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts
from gpuplan.solvers.improve.packing_ahead import packing_ahead, packs_ahead
from gpuplan.solvers.incumbent import NO_SOLVER, EpochSearch, Limits
from gpuplan.solvers.pipeline import GREEDY, LNS, must_keep_last_plan, offer_extended_plan, solve_stage
from gpuplan.solvers.priority_stages import (
    PriorityResults,
    plans_of_stages,
    stage_part,
    stage_problem,
    verifier_of_stage,
    with_last_plan_where_better,
)
from gpuplan.solvers.shared_model import HOLD_ENTRY, WholeModel
from gpuplan.solvers.solver_child import RELAXATION_ENTRY, starts_to_choose
from gpuplan.solvers.targets.to_target import target_of
from gpuplan.solvers.worker import kept_server, load_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState, Milestone, RejectedAnswer, Solution
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.odd_shares import Packing
    from gpuplan.solvers.incumbent import Check, Watch

__all__ = ["Limits", "solve"]


@kept_server()
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
    if settled or (len(problem.priorities) < 2 and not packs_ahead(problem, limits)):
        if ahead := not settled and takes_worker(problem, limits):
            load_ahead(SOLVE_ENTRY)
            load_ahead(RELAXATION_ENTRY)
        return solve_stage(
            problem,
            running,
            limits,
            check,
            watch,
            began=began,
            last=warm,
            newcomers=newcomers,
            settled=settled,
            ahead=ahead,
        )
    return _TieredSolve(problem, running, limits, check, watch, began).run(warm, newcomers)


def takes_worker(problem: Problem, limits: Limits) -> bool:
    """True if a worker will very likely be asked, which had better load while greedy plans."""
    asks = bool(limits.solvers) or limits.bounds_apart
    return asks and starts_to_choose(problem) > limits.params.portfolio.choices_to_load_ahead


class _TieredSolve:
    """
    Plan one priority after the other, the highest first; what each earns is a floor for all later stages.

    While greedy's plan is proven to be the best for a priority, no exact solver runs. If later starts are
    planned, or time is short, greedy's plan is the floor. Once the time of a stage was too short to find a
    better plan, it would be for the later ones too, which are larger: the last one gets that time.
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
        self._began, self._posed = began, time.monotonic() - began
        self._served = PriorityResults(self._problem, running)
        self._floors: dict[int, int] = {}
        self._first: tuple[str, DesiredState] | None = None
        """The plan of the last stage and its solver; None while greedy's plans are the best."""
        self._greedy: dict[int, DesiredState] = {}
        """Greedy's plan after the turn of each priority."""
        self._kept: tuple[str, DesiredState] | None = None
        """The last verified plan and its solver; it meets all floors so far."""
        self._stages: list[Stage] = []
        self._fruitless = False
        """True once the time of a stage was up before anything better than greedy's plan was found."""
        self._interrupted = False
        self._milestones: tuple[Milestone, ...] = ()
        """Progress before the first stage."""
        self._rejected: tuple[RejectedAnswer, ...] = ()
        self._announced: DesiredState | None = None
        """Greedy's plan of all priorities, or the better packing, if it breaks no rule."""
        self._packing: Packing | None = None
        """The packing that takes the place of greedy's plans."""
        self._greedy_gain = 0
        """Gain of greedy's plan of all priorities over no change."""
        self._greedy_objective: int | None = None
        """Its objective if a plan is announced."""
        self._verifying = 0.0
        """Most seconds to verify a plan of all priorities."""
        self._whole = WholeModel(self._problem, limits.params.formulation)
        self._few_choices = limits.params.exact.child.few_choices
        """Limit of stages that are first tried in this process."""
        self._prepared = False
        """True if a worker is there already."""

    @contextmanager
    def _ahead(self) -> Iterator[Callable[[], Packing | None]]:
        """Let another process pack, or prepare what solvers need, while greedy plans."""
        if not packs_ahead(self._problem, self._limits):
            self._prepare()
            yield lambda: None
            return
        with packing_ahead(
            self._problem, self._running, self._limits, began=self._began, posed=self._posed
        ) as packing:
            yield packing

    def _prepare(self) -> None:
        """Let the worker load its libraries and build the model while greedy plans."""
        if not takes_worker(self._problem, self._limits):
            return
        params = self._limits.params.portfolio
        self._prepared = True
        self._few_choices = min(self._few_choices, params.choices_in_process)
        load_ahead(SOLVE_ENTRY)
        if starts_to_choose(self._problem) <= params.choices_to_share:
            load_ahead(HOLD_ENTRY, self._whole.name, self._problem, self._limits.params.formulation)
        load_ahead(RELAXATION_ENTRY)

    def run(self, warm: DesiredState | None, newcomers: frozenset[str]) -> Solution:
        """The best plan that keeps the order of priorities."""
        if warm is not None and (hurried := self._hurried(warm, newcomers)) is not None:
            return hurried
        priorities, packed = self._problem.priorities, None
        with self._ahead() as packing:
            search = self._search()
            foreseen = self._foreseen() if self._problem.slots > 1 else None
            if foreseen is None:
                self._by_turns()
            try:
                packed = packing()
            except KeyboardInterrupt:
                self._interrupted = True
        try:
            self._announce(search, packed)
            if not self._interrupted:
                self._take_all(foreseen)
        except KeyboardInterrupt:
            self._interrupted = True
        problem, limits = replace(self._problem, floors=tuple(self._floors.items())), self._limits
        if self._interrupted:
            # What is known is completed by jobs of lower priority, and nothing is looked for any more.
            limits = replace(limits, seconds=time.monotonic() - self._began, reserved=0.0)
        solution = solve_stage(
            problem,
            self._running,
            self._limits_of_stage(limits),
            self._check,
            self._watch,
            keeps=partial(self._served.keeps, problem=problem),
            began=self._began,
            first=self._first,
            start=self._greedy.get(priorities[-1]),
            start_by=self._start_by,
            # It is one of plans that bring as much as the packing, and not of those of a better stage.
            start_bound=self._packing.bound if self._packing and self._first is None else None,
            kept=self._kept,
            last=warm,
            newcomers=newcomers,
            exact=not self._interrupted,
            part=stage_part(self._whole, problem, priorities[-1]),
            ahead=self._prepared,
            verifying=self._verifying,
        )
        return self._of_all_stages(solution)

    def _of_all_stages(self, solution: Solution) -> Solution:
        """The result of the last stage as that of the whole search."""
        # The last stage counts its time from the beginning of the epoch.
        before = solution.phases["pose"] - self._posed
        phases = {**solution.phases, "pose": self._posed, "higher priorities": before}
        milestones = (*self._milestones, *solution.milestones)
        stages = (*self._stages, *self._not_asked(solution.target))
        rejected = (*self._rejected, *solution.rejected)
        solution = replace(solution, phases=phases, milestones=milestones, stages=stages, rejected=rejected)
        if self._greedy_objective is not None:
            # The last stage began from the best plan of the stages before it.
            solution = replace(solution, greedy_objective=self._greedy_objective)
        if self._interrupted:
            return replace(solution, status=SolveStatus.FEASIBLE, ended=StopReason.INTERRUPTED)
        if all(each.proven for each in stages):
            return solution
        ended = StopReason.EXHAUSTED if solution.ended is StopReason.PROVEN else solution.ended
        return replace(solution, status=SolveStatus.FEASIBLE, ended=ended)

    def _not_asked(self, target: DesiredState) -> Iterator[Stage]:
        """Stages for which there was no time, with what the plan brings them."""
        points = self._served.points(target)
        for priority in self._problem.priorities[len(self._stages) : -1]:
            yield Stage(priority, points.get(priority, 0), proven=False)

    def _search(self) -> EpochSearch:
        """A search for plans of all priorities; it verifies the plan without changes, and notes the time."""
        search = EpochSearch(
            self._problem, self._running, self._limits, self._check, self._watch, self._began
        )
        self._verifying = max(self._verifying, search.verify_seconds)
        return search

    def _announce(self, search: EpochSearch, packed: Packing | None) -> None:
        """
        Show greedy's plan of all priorities, before any stage: a plan is there as soon as it can be.

        A packing that brings more takes its place.
        """
        lowest = self._greedy.get(self._problem.priorities[-1])
        plan = self._first[1] if self._first else lowest
        if plan is None:
            return
        better = packed is not None and self._served.brings_more(packed.target, plan)
        if packed is not None and better and search.submit_plan(LNS, packed.target):
            self._packing, plan = packed, packed.target
            self._greedy = plans_of_stages(plan, self._running, self._problem)
            self._announced, self._greedy_objective = plan, search.unchanged_objective + self._greedy_gain
        elif search.submit_plan(GREEDY, plan):
            self._announced, self._greedy_objective = plan, search.objective
        self._milestones = search.milestones
        self._verifying = max(self._verifying, search.verify_seconds)
        # Greedy's plan is offered, and rejected, once more.
        self._rejected = tuple(each for each in search.solution().rejected if each.solver == LNS)

    @property
    def _start_by(self) -> str:
        """The solver of the plans that stages begin with."""
        return GREEDY if self._packing is None else LNS

    def _take_all(self, foreseen: dict[int, int] | None) -> None:
        """Plan all stages but the last."""
        priorities, leave = self._problem.priorities, False
        for number, priority in enumerate(priorities[:-1]):
            # A priority keeps what the packing brings it if that is proven to be the most, or time is up.
            packed = self._packing and (priority in self._packing.proven or self._left <= 0)
            if packed and self._leave_to_last(priority):
                continue
            if self._left <= 0 and not self._limits.deterministic:
                if foreseen is None:
                    break
                self._floors[priority] = foreseen.get(priority, 0)
                self._stages.append(Stage(priority, self._floors[priority], proven=False))
                continue
            seconds = self._share_of(number)
            # Once one stage is left to the last, so are those after it: no lower priority is solved first.
            leave = leave or not self._is_enough(seconds)
            if leave and self._leave_to_last(priority):
                continue
            if not self._stages and foreseen is None and self._problem.guarantees:
                # Only plans of stages that are taken are of use.
                self._greedy = with_last_plan_where_better(
                    self._problem, self._running, self._greedy, self._served, self._check, self._deadline
                )
                seconds = self._share_of(number)
            exact = number < self._limits.params.portfolio.max_stages and not self._fruitless
            self._take(priority, seconds, foreseen, exact=exact)
            if self._interrupted:
                break

    @property
    def _left(self) -> float:
        """Seconds until the end of the search; negative after it."""
        return self._began + self._limits.search_seconds - time.monotonic()

    def _share_of(self, number: int) -> float:
        """Seconds of a stage: all later ones get as much, and the last one twice that."""
        return max(0.0, self._left / (len(self._problem.priorities) - number + 1))

    def _is_enough(self, seconds: float) -> bool:
        """True if an exact solver can very likely end a stage in that time."""
        least = self._limits.params.portfolio.bounds_per_stage * self._limits.reserved_for_bound
        return self._limits.deterministic or seconds >= least

    def _leave_to_last(self, priority: int) -> bool:
        """
        Leave the time of a stage to the last one: its floor is what greedy's last plan brings it.

        False, and nothing changes, if that plan does not meet the floors so far.
        """
        asked = replace(self._problem, floors=tuple(self._floors.items()))
        if self._announced is None or not self._served.keeps(self._announced, asked):
            return False
        self._floors[priority] = self._served.points(self._announced).get(priority, 0)
        proven = self._packing is not None and priority in self._packing.proven
        self._stages.append(Stage(priority, self._floors[priority], proven=proven))
        return True

    def _limits_of_stage(self, limits: Limits) -> Limits:
        params = limits.params
        child = replace(params.exact.child, few_choices=self._few_choices)
        return replace(limits, params=replace(params, exact=replace(params.exact, child=child)))

    @property
    def _deadline(self) -> float | None:
        """Deadline of greedy, so that its plan can be verified and get a bound; None without a clock."""
        if self._limits.deterministic:
            return None
        checking = self._limits.params.portfolio.checks_of_no_change_per_plan * self._verifying
        after = self._limits.reserved_for_bound + checking
        return self._began + self._limits.search_seconds - after

    def _hurried(self, warm: DesiredState, newcomers: frozenset[str]) -> Solution | None:
        """The last plan carried on, if there is no time to look for a better one; None if there is."""
        search = self._search()
        offer_extended_plan(search, warm, newcomers)
        if not must_keep_last_plan(search):
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
        target = target_of(ledger, self._running)
        if self._check(target).violations:
            # No plan may meet the floors of a plan that breaks a rule.
            return {}
        self._first = GREEDY, target
        return dict(ledger.served)

    def _by_turns(self) -> None:
        """Find greedy's plans of all stages."""
        self._greedy, self._greedy_gain = greedy_by_priority(
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
        solution = solve_stage(
            asked,
            self._running,
            self._limits_of_stage(
                replace(self._limits, seconds=seconds, reserved=0.0, reserved_for_bound=0.0)
            ),
            verifier_of_stage(self._check, self._served, asked),
            None,
            keeps=partial(self._served.keeps, problem=asked),
            began=time.monotonic(),
            first=self._first if foreseen is None else None,
            start=self._greedy.get(priority),
            start_by=self._start_by,
            kept=self._kept,
            exact=exact,
            enough=True,
            part=stage_part(self._whole, problem, priority),
        )
        if solution.solver != NO_SOLVER:
            self._kept = solution.solver, solution.target
        self._interrupted = solution.ended is StopReason.INTERRUPTED
        points = self._served.points(solution.target)
        proven = solution.status is SolveStatus.OPTIMAL
        if exact and not proven and self._prepared:
            # Later stages are larger: it is not tried again to solve them in this process.
            self._few_choices = 0
        better = solution.objective > solution.greedy_objective
        self._fruitless |= solution.ended is StopReason.TIME and not (proven or better)
        if foreseen is not None:
            as_greedy = solution.objective == solution.greedy_objective
            proven = proven and as_greedy and points[priority] <= foreseen.get(priority, 0)
            self._floors[priority] = foreseen.get(priority, 0)
        else:
            if solution.solver != NO_SOLVER and solution.target != self._start_of(priority):
                self._first = solution.solver, solution.target
            # A stage without a plan leaves the floors before it as they are.
            met = (each for each in self._problem.priorities if each >= priority)
            for each in met if solution.solver != NO_SOLVER else (priority,):
                self._floors[each] = points[each]
        self._stages.append(Stage(priority, self._floors[priority], proven=proven))
