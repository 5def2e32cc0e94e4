"""Search: the best verified plan of an epoch so far, the least bound, and the record of what happened."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.desired_state import Target
from gpuplan.models.plan.solution import (
    Ended,
    Fallback,
    Milestone,
    Rejected,
    Solution,
    SolveStatus,
    gap_between,
)
from gpuplan.solvers.interface import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.verifier.verify import Verification

    Check = Callable[[Target], Verification]
    Watch = Callable[[Milestone], None]

LAST_PLAN: Final = "last plan"
NOBODY: Final = "none"
"""Made the plan to leave all as it is."""

_BREACH: Final = 10**15
"""Any plan that breaks no rule is better than one that does."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one epoch may spend."""

    seconds: float
    solvers: tuple[str, ...]
    """Exact solvers in the order they are tried."""
    workers: int = 1
    seed: int = 0
    ticks: int | None = None
    """Deterministic work; with it the clock is a safety stop alone."""
    stop_gap: float = 0.0

    @property
    def deterministic(self) -> bool:
        """True if the clock decides nothing."""
        return self.ticks is not None

    def budget(self, deadline: float) -> Budget:
        """What a process of its own may spend until then."""
        return Budget(deadline, self.workers, self.seed, self.ticks, self.stop_gap)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A verified plan and who made it."""

    solver: str
    target: Target
    objective: int
    not_disaggregated: int = 0


class Search:
    """One epoch's search."""

    def __init__(
        self,
        problem: Problem,
        running: tuple[Placement, ...],
        limits: Limits,
        check: Check,
        watch: Watch | None = None,
        began: float | None = None,
        keeps: Callable[[Target], bool] | None = None,
    ) -> None:
        """
        The time counts from where the epoch began, an instant of `time.monotonic`; from now without it.

        Plans that a question does not allow, though they break no rule, are not kept by `keeps`.
        """
        self.problem = problem
        self.running = running
        self.limits = limits
        now = time.monotonic()
        self.began = now if began is None else began
        self.phases: dict[str, float] = {} if began is None else {"pose": now - began}
        self.one_check = 0.0
        """Seconds that it takes to verify a plan, at most: one that is known already takes none."""
        self.failures: list[tuple[str, str]] = []
        """(solver, reason), of what did not help."""
        self.bound_note = ""
        self.ended = Ended.EXHAUSTED
        self.greedy_objective = 0
        self.judged = 0
        """Objective of the last plan that was offered."""
        self._check = check
        self.keeps = keeps or (lambda _: True)
        self._watch = watch
        self._rejected: list[Rejected] = []
        self._milestones: list[Milestone] = []
        nothing = Target(tuple(sorted(running, key=lambda placement: placement.job)))
        verification = self.judge(nothing)
        self.idle = nothing
        """All stays as it is."""
        # To do nothing is to break the promises that are due, and brings higher priorities nothing.
        legal = not verification.violations and self.keeps(nothing)
        self.doing_nothing = doing_nothing = verification.objective
        self.best = Candidate(NOBODY, nothing, doing_nothing if legal else doing_nothing - _BREACH)
        # The problem's points are differences to leaving all as it is; those of a formulation are not.
        self._bounds = {"ceiling": doing_nothing + problem.ceiling}
        """The least bound by whom it was claimed; none is below a verified plan."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time of something."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    @property
    def deadline(self) -> float:
        """Instant at which the last plan must have been found, so that it can still be verified."""
        return self.began + self.limits.seconds - self.one_check

    @property
    def left(self) -> float:
        """Seconds until then; below 0 after it."""
        return self.deadline - time.monotonic()

    def judge(self, target: Target) -> Verification:
        """Have a plan verified."""
        began = time.monotonic()
        with self.phase("verify"):
            verification = self._check(target)
        self.one_check = max(self.one_check, time.monotonic() - began)
        return verification

    def offer(
        self, solver: str, target: Target, *, missed: int = 0, stage: str = "", exact: bool = False
    ) -> bool:
        """
        Keep a plan if it breaks no rule and is better; False if it breaks one.

        Of equally good ones the first stays: greedy leaves larger pieces free than counts that are dealt out,
        and a last plan is what people know. An `exact` solver that found it again names it.
        """
        if not self.keeps(target):
            self.tell(stage or solver)
            return True
        verification = self.judge(target)
        if verification.violations:
            self._rejected.append(Rejected(solver, verification.violations))
            return False
        least = self.best.objective + (self.best.solver != NOBODY)
        self.judged = verification.objective
        if verification.objective >= least:
            self.best = Candidate(solver, target, verification.objective, missed)
            for claimant, bound in tuple(self._bounds.items()):
                if bound < verification.objective:
                    self._disbelieve(claimant, self._bounds.pop(claimant))
            if not self._bounds:  # as of a last plan that is legal, though nobody would offer it
                self._bounds["nobody"] = verification.objective + _BREACH
        elif exact and verification.objective == self.best.objective and self.best.solver != LAST_PLAN:
            self.best = replace(self.best, solver=solver)
        self.tell(stage or solver)
        return True

    def rest(self) -> None:
        """Leave all as it is."""
        self.best = replace(self.best, solver=LAST_PLAN)
        self.ended = Ended.SETTLED

    def believe(self, solver: str, bound: int | None) -> bool:
        """Take over a bound; False, and a note, if a verified plan is better than that."""
        if bound is None:
            return True
        if bound < self.best.objective:
            self._disbelieve(solver, bound)
            return False
        self._bounds[solver] = min(bound, self._bounds.get(solver, bound))
        return True

    def _disbelieve(self, solver: str, bound: int) -> None:
        why = f"claimed the bound {bound}, below a verified plan of {self.best.objective}"
        self.bound_note = f"{solver}: {why}"
        self.failures.append((solver, why))

    def tell(self, stage: str, found: int | None = None, bound: int | None = None) -> None:
        """Record where the search is, with what a solver claims so far, and show it to whoever watches."""
        objective = None if self.best.solver == NOBODY else self.best.objective
        bound = self.bound if bound is None else min(bound, self.bound)
        now = Milestone(time.monotonic() - self.began, stage, objective, bound, found)
        if not self._milestones or now != replace(self._milestones[-1], seconds=now.seconds):
            self._milestones.append(now)
        if self._watch is not None:
            self._watch(now)

    @property
    def bound(self) -> int:
        """No plan scores more, as far as nobody was found wrong."""
        return min(self._bounds.values())

    @property
    def proven(self) -> bool:
        """True if the gap is as small as it has to be."""
        return gap_between(self.best.objective, self.bound) <= self.limits.stop_gap

    def solution(self) -> Solution:
        """What came of it."""
        best, failures = self.best, self.failures
        optimal = best.objective >= self.bound
        fallback = None
        if failures and best.solver != failures[0][0]:
            reasons = "; ".join(f"{solver}: {reason}" for solver, reason in failures)
            fallback = Fallback(tried=failures[0][0], used=best.solver, reason=reasons)
        ended = self.ended
        if ended is Ended.SETTLED:
            pass
        elif optimal:
            ended = Ended.PROVEN
        elif self.proven:
            ended = Ended.GAP
        return Solution(
            status=SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE,
            solver=best.solver,
            target=best.target,
            objective=best.objective,
            bound=self.bound,
            greedy_objective=self.greedy_objective,
            seconds=time.monotonic() - self.began,
            phases=self.phases,
            fallback=fallback,
            rejected=tuple(self._rejected),
            # Jobs without a place in a plan that no other beats have missed nothing.
            not_disaggregated=0 if optimal else best.not_disaggregated,
            bound_note=self.bound_note,
            ended=ended,
            milestones=tuple(self._milestones),
        )
