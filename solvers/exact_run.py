"""
Run one exact solver on the problem of an epoch, place its answers on nodes and verify them.

The solver runs in a child process (`solver_child`) unless the problem is small. It starts with the linear
relaxation; meanwhile this process places the rounded vertex of the relaxation.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.solution import SolveStatus, StopReason
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.improve.finer_model import seconds_of_finer_model
from gpuplan.solvers.improve.pop_partition import partition_count
from gpuplan.solvers.incumbent import STOPPED_RELAXATION
from gpuplan.solvers.interface import PlacedAnswer, RepairedAnswer
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.solver_child import (
    RELAXATION,
    SolverFinding,
    SolverTask,
    is_small,
    relaxed_bound,
    solve_in_process,
)
from gpuplan.solvers.targets.to_target import target_of
from gpuplan.solvers.worker import ChildOutcome, run_in_child, start_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.formulation.decode import Aggregate
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.solvers.incumbent import EpochSearch
    from gpuplan.solvers.interface import Budget
    from gpuplan.solvers.worker import ChildProcess

SOLVE_ENTRY: Final = "gpuplan.solvers.solver_child:solve_block_model"
BOUND_ENTRY: Final = "gpuplan.solvers.solver_child:relaxed_bound"
REPAIR_ENTRY: Final = "gpuplan.solvers.improve.answer_repair:repair_answer"


class TargetGapReachedError(Exception):
    """The answer is good enough: no more is needed from the solver."""


class BoundTooLateError(Exception):
    """The solver has proven no bound in time: another way to one needs the rest of the time."""


def last_bound(search: EpochSearch) -> int | None:
    """
    Upper bound where no solver had the time to report any; None if it cannot be found, or not in time.

    It is computed in this process, or in another one if it takes long (`Limits.bounds_apart`). That one need
    not build the model if it holds the model of all stages. It is killed if it takes much longer than
    expected, or at the end of the search; a late search still leaves it the time that was kept back.
    """
    limits, now = search.limits, time.monotonic()
    seconds, most = limits.reserved_for_bound, limits.params.portfolio.reserves_of_last_bound
    if not limits.bounds_apart:
        return relaxed_bound(search.problem, None, limits.budget(now + seconds))
    most_seconds = min(most * seconds, max(search.deadline_with_bound - now, seconds))
    # The second half of the time beyond the budget is for the bound of what the simplex method has reached.
    latest = now + (seconds + most_seconds) / 2
    arguments = (search.problem, search.part, limits.budget(now + seconds), latest)
    last = run_in_child(BOUND_ENTRY, arguments, most_seconds, lambda _: None).last
    if isinstance(last, SolverFinding):
        return last.proven
    return last if isinstance(last, int) else None


class ExactRun:
    """One run of a solver, and its findings so far."""

    def __init__(self, search: EpochSearch, solver: str | None, *, relax: bool = True) -> None:
        """Without a solver only a bound is computed, from the linear relaxation."""
        self._search, self._solver = search, solver
        self._params = search.limits.params.exact.run
        self._asks_relaxation = relax
        # If no running job may be changed, a large cluster is improved in parts sooner than as a whole.
        parts = partition_count(search.problem, search.limits.params.partition)
        self._divided = parts > 1 and not search.problem.incumbents
        self._placed_vertex = False
        self._longest_placing = 0.0
        """Longest time so far to place an answer on nodes."""
        self._plan: DesiredState | None = None
        """The last answer as it was placed on nodes …"""
        self._missed = 0
        """… and the number of its jobs that found no place."""
        self.relaxed = not relax
        """True once the linear relaxation has run."""
        self._last: SolverFinding | None = None
        self._killed = "did not stop at its time limit and was killed"
        """Text if the process is ended from here."""
        self._tried: SolverFinding | None = None
        """The last intermediate answer that was considered for placing."""
        now, placing = time.monotonic(), self._time_to_place()
        self._set_aside = placing
        """Seconds reserved for placing the final answer."""
        # The relaxation, with which it begins, brings the bound.
        left = search.deadline_with_bound - now - placing
        self._resting = search.ended is StopReason.SETTLED
        # Placing later starts takes long: with less than half of that left to search, a bound is worth more.
        least = 0 if search.problem.slots == 1 else placing / 2
        self._placing = (search.limits.deterministic or left > least) and not self._resting
        # A bound is useful even without time to place a plan.
        self._deadline = search.deadline
        if self._placing and solver is not None and not search.limits.deterministic:
            self._deadline = now + self._seconds_of(left)
        if self._resting and solver is not None:
            self._deadline = min(self._deadline, now + self._params.seconds_for_bound)

    def run(self) -> bool:
        """Run the solver and place its answer; False if the next solver must be tried."""
        with self._search.phase("solve"), suppress(TargetGapReachedError):
            return self._judge(self._solve_here() or self._asked())
        return True

    def _solve_here(self) -> ChildOutcome | None:
        """Outcome in this process; None if the problem is too large, or too hard, for that."""
        if not is_small(self._search.problem, self._search.limits.params.exact.child):
            return None
        last = None
        for last in solve_in_process(*self._arguments()):
            self._hear(last)
        enough = last is not None and (self._solver is None or last.stage != RELAXATION)
        return ChildOutcome(last) if enough else None

    @contextmanager
    def begun(self) -> Iterator[ChildProcess]:
        """Run the solver in a child process while this one does other work."""
        with start_child(SOLVE_ENTRY, self._arguments(), self._seconds) as child:
            yield child

    def outcome_of(self, child: ChildProcess) -> ChildOutcome | None:
        """Follow a running solver to its end; None if the gap asked for is reached before."""
        with self._search.phase("solve"), suppress(TargetGapReachedError):
            return self._followed(child.wait)
        return None

    def judge(self, outcome: ChildOutcome) -> bool:
        """Place the answer of a solver that has ended; False if the next one must be tried."""
        with self._search.phase("solve"), suppress(TargetGapReachedError):
            return self._judge(outcome)
        return True

    def _asked(self) -> ChildOutcome:
        return self._followed(partial(run_in_child, SOLVE_ENTRY, self._arguments(), self._seconds))

    def _followed(self, follow: Callable[[Callable[[object], None]], ChildOutcome]) -> ChildOutcome:
        """Follow a solver to its end, or until a bound is needed that it has not proven."""
        try:
            return follow(self._hear)
        except BoundTooLateError:
            self._killed = "had proven no bound in time"
            return ChildOutcome(self._last, killed=True)

    def _seconds_of(self, left: float) -> float:
        """Seconds of those left that the solver may take; the rest is for what improves its answer."""
        search, params = self._search, self._params
        # Plans with later starts are not refined; the time to place one is known once greedy has run.
        if search.problem.slots > 1 and "greedy" in search.phases:
            return left
        # The finer model has the better answers: it needs most of the time.
        first = max(params.share_before_finer_model * left, min(left, params.least_before_finer_model))
        if self._seconds_of_finer_model <= left - first:
            return first
        large = len(search.problem.nodes) >= search.limits.params.portfolio.many_nodes
        share = params.share_of_time_if_large if large else params.share_of_time
        return max(share * left, min(left, params.least_seconds))

    @cached_property
    def _seconds_of_finer_model(self) -> float:
        return seconds_of_finer_model(self._search.problem, self._search.limits.params)

    @property
    def _seconds(self) -> float:
        return max(0.01, self._deadline - time.monotonic())

    def _arguments(self) -> tuple[SolverTask, Budget]:
        search = self._search
        entry = None if self._solver is None else SOLVERS[self._solver]
        question = SolverTask(
            search.problem, search.idle, search.best.target, entry, self._asks_relaxation, search.part
        )
        return question, search.limits.budget(self._deadline)

    def _time_to_place(self) -> float:
        """Seconds to place and verify a plan, estimated from greedy's plan."""
        search = self._search
        one_plan = search.phases.get("greedy", self._params.verifications_per_placing * search.verify_seconds)
        one_plan *= 1 if search.problem.slots == 1 else self._params.placing_factor_of_slots
        return max(one_plan, self._longest_placing) + search.verify_seconds

    def _hear(self, message: object) -> None:
        """Take over an intermediate report of the solver."""
        search, finding = self._search, message if isinstance(message, SolverFinding) else self._last
        exempt = search.limits.deterministic or search.has_dual_bound
        placing = self._set_aside if finding is not None and finding.aggregate is not None else 0.0
        if message is None and not exempt and time.monotonic() > search.deadline - placing:
            raise BoundTooLateError
        if finding is None:
            search.record_milestone(RELAXATION)
            return
        stage = RELAXATION if finding.stage == RELAXATION else self._name
        if finding is not self._last:
            self._last = finding
            self._take(stage, finding)
        elif message is None and finding is not self._tried:
            self._tried = finding
            self._place_meanwhile(finding)
        # A claimed bound is not used before the solver ends normally, but it is shown.
        claimed = finding.claimed_bound
        shown = claimed if claimed is not None and claimed >= search.best.objective else None
        search.record_milestone(stage, finding.found, shown)
        if search.proven or (self._divided and self._placed_vertex):
            raise TargetGapReachedError

    def _take(self, stage: str, finding: SolverFinding) -> None:
        search = self._search
        if finding.proven is not None:
            ended = finding.claimed_bound is not None
            search.add_bound(f"{stage}'s multipliers" if ended else STOPPED_RELAXATION, finding.proven)
        if stage == RELAXATION and finding.final:
            self.relaxed = True
            if finding.proven is None:
                search.bound_note = f"relaxation: {finding.detail}"
        # A solver that starts with the relaxation itself reports the vertex once, as an intermediate finding.
        vertex = finding.is_vertex and finding.final == (stage == RELAXATION)
        guess = finding.aggregate if vertex and self._params.place_vertex else None
        if guess is not None and self._solver is not None and self._has_time() and not search.proven:
            # If the solver continues from there, an early plan is worth more than a slightly better one.
            self._placed_vertex = self._place(RELAXATION, guess, once=not self._divided)

    def _place_meanwhile(self, finding: SolverFinding) -> None:
        """Place an intermediate answer while the solver runs, if it is much better than the best plan."""
        search, found = self._search, finding.found
        if found is None or finding.aggregate is None or finding.final or search.limits.deterministic:
            return
        if not self._params.place_intermediate:
            return
        # There must be time to place the final answer too.
        in_time = self._placing and 2 * self._time_to_place() < search.left
        least = self._params.least_gain * abs(search.best.objective)
        if in_time and found - search.best.objective > least:
            self._place(self._name, finding.aggregate, once=True)

    def _has_time(self) -> bool:
        search = self._search
        return search.limits.deterministic or self._time_to_place() < search.left

    @property
    def _name(self) -> str:
        return self._solver or RELAXATION

    def _judge(self, outcome: ChildOutcome) -> bool:
        """Place the final answer of a solver; False if the next one must be tried."""
        search, solver = self._search, self._solver
        if outcome.failure and not self.relaxed:
            # The failure may be that of the relaxation, which HiGHS solves for every solver.
            search.bound_note = f"relaxation: {outcome.failure}"
            self.relaxed, self._asks_relaxation = True, False
            if solver is not None and time.monotonic() < self._deadline:
                outcome = self._asked()
        if solver is None:
            return True
        finding = self._answer(outcome)
        fault = self._fault(finding)
        if self._resting:
            return fault is None and search.add_bound(solver, finding.claimed_bound)
        if fault is not None:
            search.failures.append((solver, fault))
            return False
        search.add_bound(solver, finding.claimed_bound)
        if not self._placing:
            why = f"no time left of {search.limits.seconds_text} to place what it found"
            search.failures.append((solver, why))
            search.ended = StopReason.TIME
            return True
        if finding.aggregate is None or finding.status is SolveStatus.NO_ANSWER:
            search.failures.append((solver, f"found no plan: {finding.detail}"))
            return False
        search.load_next()
        # A second pass takes longer than the first: 5 s instead of 2 at XL.
        once = not search.limits.deterministic and search.left < self._time_to_place()
        if not self._place(solver, finding.aggregate, once=once):
            search.failures.append((solver, "its plan broke a rule"))
            return False
        self._repair(solver, finding)
        if search.best.solver != solver:
            # A floor is what a plan brings a priority on nodes; an answer that meets it may miss it there.
            kept = self._plan is None or search.keeps(self._plan)
            why = "scored no more than this one" if kept else "left a higher priority less than this one"
            search.failures.append((solver, f"its plan, once placed on nodes, {why}"))
        # With ticks too: a run that the clock has ended may not be reproducible.
        if time.monotonic() >= self._deadline:
            search.ended = StopReason.TIME
        elif search.limits.deterministic:
            search.ended = StopReason.TICKS
        return True

    def _answer(self, outcome: ChildOutcome) -> SolverFinding:
        """The final answer of the solver, or its last report before it was killed."""
        last = outcome.last if isinstance(outcome.last, SolverFinding) else None
        own = last is not None and last.stage != RELAXATION
        if last is not None and own and last.final:
            return last
        if outcome.failure:
            return SolverFinding(self._name, SolveStatus.FAILED, final=True, detail=outcome.failure)
        if last is None or not own:
            status = SolveStatus.NO_ANSWER if outcome.killed else SolveStatus.FAILED
            detail = self._killed if outcome.killed else "gave no answer"
            return SolverFinding(self._name, status, final=True, detail=detail)
        return replace(last, detail=self._killed) if outcome.killed else last

    def _fault(self, finding: SolverFinding) -> str | None:
        """Why an answer cannot be used at all; only claims that can be checked are trusted."""
        best = self._search.best.objective
        if finding.status in (SolveStatus.FAILED, SolveStatus.INFEASIBLE):
            return f"{finding.status}: {finding.detail}"
        if finding.claimed_bound is not None and finding.claimed_bound < best:
            return f"claimed the bound {finding.claimed_bound}, below a verified plan of {best}"
        return finding.fault or None

    def _place(self, solver: str, aggregate: Aggregate, *, once: bool = False) -> bool:
        """Place an answer on nodes and verify the plan; False if it breaks a rule."""
        search, began = self._search, time.monotonic()
        # A late answer is placed all the same, within the time that placing is expected to take.
        deadline = None if search.limits.deterministic else search.deadline + self._set_aside
        with search.phase("disaggregate"):
            placed, missed = disaggregate(
                search.problem,
                aggregate,
                deadline=deadline,
                once=once,
                known=search.best.objective - search.unchanged_objective,
                params=search.limits.params.placement,
            )
            target = target_of(placed, search.running)
        self._longest_placing = max(self._longest_placing, time.monotonic() - began)
        self._plan, self._missed = target, missed
        return search.submit_plan(solver, target, missed=missed, stage="place", exact=solver in SOLVERS)

    def _repair(self, solver: str, finding: SolverFinding) -> None:
        """Ask again, node by node, for what the plan just placed lacks of the answer."""
        search, params = self._search, self._search.limits.params.repair
        aggregate, found = finding.aggregate, finding.found
        if not params.enabled or search.problem.slots > 1 or aggregate is None or found is None:
            return
        if search.judged >= found or search.proven or self._plan is None:
            return
        left = search.left - search.verify_seconds
        if left <= 0 and not search.limits.deterministic:
            return
        deadline = search.deadline
        if not search.limits.deterministic:
            follows = self._seconds_of_finer_model <= left * (1 - params.share_before_finer_model)
            share = params.share_before_finer_model if follows else params.share_of_time
            deadline = time.monotonic() + share * left
        budget = search.limits.budget(deadline)
        placed = PlacedAnswer(aggregate, found - search.unchanged_objective, self._plan)
        better = list[RepairedAnswer]()

        def listen(message: object) -> None:
            if isinstance(message, RepairedAnswer):
                better[:] = [message]

        with search.phase("repair"):
            arguments = search.problem, search.running, placed, budget
            outcome = run_in_child(REPAIR_ENTRY, arguments, budget.seconds, listen)
        if outcome.failure:
            search.failures.append((solver, f"repair: {outcome.failure}"))
        if better:
            missed = min(self._missed, better[0].lacking)
            search.submit_plan(solver, better[0].target, missed=missed, stage="repair", exact=True)
