"""Search: the best verified plan of an epoch so far, the least bound, and the record of events."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.solution import (
    DesiredState,
    Fallback,
    Milestone,
    RejectedAnswer,
    Solution,
    SolveStatus,
    StopReason,
    gap_between,
)
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.params.search import SearchParams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.verifier.verify import Verification
    from gpuplan.solvers.shared_model import ModelPart

    Check = Callable[[DesiredState], Verification]
    Watch = Callable[[Milestone], None]

LAST_PLAN: Final = "last plan"
NO_SOLVER: Final = "none"
"""Solver of the plan that changes nothing."""

_CEILING: Final = "ceiling"
_UNKNOWN: Final = "unknown"
"""Claimants of the bounds that are there without any solver."""

STOPPED_RELAXATION: Final = "stopped relaxation's multipliers"
"""Claimant of a bound from a relaxation that did not end: it may be far from what the relaxation proves."""

_VIOLATION_PENALTY: Final = 10**15
"""Makes any plan without violations better than one with violations."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one epoch."""

    seconds: float
    solvers: tuple[str, ...]
    """Exact solvers in the order in which they are tried."""
    workers: int = 1
    seed: int = 0
    ticks: int | None = None
    """Deterministic work; with it the clock is only a safety stop."""
    stop_gap: float = 0.0
    params: SearchParams = SearchParams()
    reserved: float = 0.0
    """Seconds of these that the search leaves for what comes after it."""
    reserved_for_bound: float = 0.0
    """Seconds that it also leaves as long as no solver has reported multipliers."""

    @property
    def search_seconds(self) -> float:
        """Seconds from the beginning of the epoch to the end of its search."""
        return self.seconds - self.reserved

    @property
    def seconds_text(self) -> str:
        """The limit in words; with deterministic work it is a multiple of what the user asked for."""
        return f"{self.seconds:g} s{', the safety stop' if self.deterministic else ''}"

    @property
    def deterministic(self) -> bool:
        """True if the clock decides nothing."""
        return self.ticks is not None

    @property
    def bounds_apart(self) -> bool:
        """True if a bound that no solver reported takes so long that another process computes it."""
        return self.reserved_for_bound >= self.params.portfolio.bound_seconds_in_process

    def budget(self, deadline: float) -> Budget:
        """Budget of a child process with this deadline."""
        return Budget(deadline, self.workers, self.seed, self.ticks, self.stop_gap, params=self.params)


@dataclass(frozen=True, slots=True)
class VerifiedPlan:
    """A verified plan and the solver that made it."""

    solver: str
    target: DesiredState
    objective: int
    """Far below the verifier's if changing nothing is not allowed, so that any other plan is better."""
    not_disaggregated: int = 0


class EpochSearch:
    """The search of one epoch."""

    def __init__(
        self,
        problem: Problem,
        running: tuple[Placement, ...],
        limits: Limits,
        check: Check,
        watch: Watch | None = None,
        began: float | None = None,
        keeps: Callable[[DesiredState], bool] | None = None,
        part: ModelPart | None = None,
    ) -> None:
        """
        `began` is the start of the epoch, an instant of `time.monotonic`; without it time counts from now.

        `keeps` is False for plans that the question does not allow although they break no rule. `part` is
        the part of a whole model that the problem is.
        """
        self.problem = problem
        self.running = running
        self.limits = limits
        now = time.monotonic()
        self.began = now if began is None else began
        self.phases: dict[str, float] = {} if began is None else {"pose": now - began}
        self.verify_seconds = 0.0
        """Maximum seconds to verify a plan so far; a plan that is known already takes none."""
        self.failures: list[tuple[str, str]] = []
        """(solver, reason) of what did not help."""
        self.bound_note = ""
        self.ended = StopReason.EXHAUSTED
        self.greedy_objective = 0
        self.judged = 0
        """Objective of the last plan that was offered."""
        self._check = check
        self.keeps = keeps or (lambda _: True)
        self.part = part
        self.load_next: Callable[[], None] = lambda: None
        """Called when the worker has nothing to do for a while."""
        self._watch = watch
        self._rejected: list[RejectedAnswer] = []
        self._milestones: list[Milestone] = []
        nothing = DesiredState(tuple(sorted(running, key=lambda placement: placement.job)))
        verification = self.judge(nothing)
        self.idle = nothing
        """The plan that changes nothing."""
        # A plan that changes nothing breaks promises that are due, and brings higher priorities nothing.
        legal = not verification.violations and self.keeps(nothing)
        self.unchanged_objective = doing_nothing = verification.objective
        self.best = VerifiedPlan(
            NO_SOLVER, nothing, doing_nothing if legal else doing_nothing - _VIOLATION_PENALTY
        )
        # Points of the problem are differences to changing nothing; points of a formulation are not.
        self._bounds = {_CEILING: doing_nothing + problem.ceiling}
        """Least bound by claimant; none is below a verified plan."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the time of a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    @property
    def deadline(self) -> float:
        """Latest instant to find the last plan, so that it can still be verified, and a bound be found."""
        for_bound = 0.0 if self.has_dual_bound else self.limits.reserved_for_bound
        return self.deadline_with_bound - for_bound

    @property
    def deadline_with_bound(self) -> float:
        """The same once there is a bound."""
        return self.began + self.limits.search_seconds - self.verify_seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - time.monotonic()

    def judge(self, target: DesiredState) -> Verification:
        """Verify a plan."""
        began = time.monotonic()
        with self.phase("verify"):
            verification = self._check(target)
        self.verify_seconds = max(self.verify_seconds, time.monotonic() - began)
        return verification

    def submit_plan(
        self, solver: str, target: DesiredState, *, missed: int = 0, stage: str = "", exact: bool = False
    ) -> bool:
        """
        Keep a plan if it breaks no rule and is better; False if it breaks a rule.

        Of equally good plans the first stays: greedy leaves larger pieces free than counts that are dealt out
        to nodes, and operators know the last plan. If an `exact` solver finds the same objective, the plan
        gets its name.
        """
        if not self.keeps(target):
            self.record_milestone(stage or solver)
            return True
        verification = self.judge(target)
        if verification.violations:
            self._rejected.append(RejectedAnswer(solver, verification.violations))
            return False
        least = self.best.objective + (self.best.solver != NO_SOLVER)
        self.judged = verification.objective
        if verification.objective >= least:
            self.best = VerifiedPlan(solver, target, verification.objective, missed)
            for claimant, bound in tuple(self._bounds.items()):
                if bound < verification.objective:
                    self._reject_bound(claimant, self._bounds.pop(claimant))
            if not self._bounds:  # possible after a last plan that is legal but that no solver offers
                self._bounds[_UNKNOWN] = verification.objective + _VIOLATION_PENALTY
        elif exact and verification.objective == self.best.objective and self.best.solver != LAST_PLAN:
            self.best = replace(self.best, solver=solver)
        self.record_milestone(stage or solver)
        return True

    def rest(self) -> None:
        """Keep everything as it is."""
        self.best = replace(self.best, solver=LAST_PLAN, objective=self.unchanged_objective)
        self.ended = StopReason.SETTLED

    def add_bound(self, solver: str, bound: int | None) -> bool:
        """Accept a bound; False, and a note, if a verified plan is better than that."""
        if bound is None:
            return True
        if bound < self.best.objective:
            self._reject_bound(solver, bound)
            return False
        self._bounds[solver] = min(bound, self._bounds.get(solver, bound))
        return True

    def _reject_bound(self, solver: str, bound: int) -> None:
        why = f"claimed the bound {bound}, below a verified plan of {self.best.objective}"
        self.bound_note = f"{solver}: {why}"
        self.failures.append((solver, why))

    def record_milestone(self, stage: str, found: int | None = None, bound: int | None = None) -> None:
        """Record where the search is, with a solver's claims so far, and show it to the watcher."""
        objective = None if self.best.solver == NO_SOLVER else self.best.objective
        bound = self.bound if bound is None else min(bound, self.bound)
        now = Milestone(time.monotonic() - self.began, stage, objective, bound, found)
        if not self._milestones or now != replace(self._milestones[-1], seconds=now.seconds):
            self._milestones.append(now)
        if self._watch is not None:
            self._watch(now)

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        """All recorded progress so far."""
        return tuple(self._milestones)

    @property
    def bound(self) -> int:
        """Upper bound on all plans, from claims that were not disproved."""
        return min(self._bounds.values())

    @property
    def has_dual_bound(self) -> bool:
        """
        True if a bound below the ceiling is known.

        An ended relaxation has proven it, or a solver claimed it at its end.
        """
        rough = {_CEILING, _UNKNOWN, STOPPED_RELAXATION}
        least = self._bounds.get(_CEILING, inf)
        return any(bound < least for claimant, bound in self._bounds.items() if claimant not in rough)

    @property
    def objective(self) -> int:
        """Objective of the best plan, as the verifier computes it, also if it is to change nothing."""
        return self.unchanged_objective if self.best.solver == NO_SOLVER else self.best.objective

    @property
    def proven(self) -> bool:
        """True if the gap is small enough to stop."""
        return gap_between(self.best.objective, self.bound) <= self.limits.stop_gap

    def solution(self) -> Solution:
        """The result of the search so far."""
        best, failures = self.best, self.failures
        optimal = best.objective >= self.bound
        fallback = None
        if failures and best.solver != failures[0][0]:
            reasons = "; ".join(f"{solver}: {reason}" for solver, reason in failures)
            fallback = Fallback(tried=failures[0][0], used=best.solver, reason=reasons)
        ended = self.ended
        if ended is StopReason.SETTLED:
            pass
        elif optimal:
            ended = StopReason.PROVEN
        elif self.proven:
            ended = StopReason.GAP
        return Solution(
            status=SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE,
            solver=best.solver,
            target=best.target,
            objective=self.objective,
            bound=self.bound,
            greedy_objective=self.greedy_objective,
            seconds=time.monotonic() - self.began,
            phases=self.phases,
            fallback=fallback,
            rejected=tuple(self._rejected),
            # In a plan that no other plan beats, jobs without a place have missed nothing.
            not_disaggregated=0 if optimal else best.not_disaggregated,
            bound_note=self.bound_note,
            ended=ended,
            milestones=self.milestones,
        )
