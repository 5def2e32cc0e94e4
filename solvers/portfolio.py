"""The pipeline: greedy always answers; exact solvers improve on it in time; the best verified answer wins."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.models.formulation import formulate
from planner.models.formulation.columns import Columns
from planner.models.solution import Fallback, Rejected, Solution, SolveStatus
from planner.models.target import Target
from planner.solvers import SOLVERS
from planner.solvers.disaggregate import disaggregate
from planner.solvers.greedy import greedy, ways
from planner.solvers.holding import hold, start_firm
from planner.solvers.interface import Budget
from planner.solvers.ledger import Ledger
from planner.solvers.worker import solve_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.models.formulation.rows import Formulation, Ints
    from planner.models.placement import Placement
    from planner.models.problem import Problem
    from planner.models.verifier import Verification
    from planner.solvers.interface import Answer

    Check = Callable[[Target], Verification]

GREEDY: Final = "greedy"

_BREACH: Final = 10**15
"""Any plan that breaks no rule is better than one that does."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one epoch may spend."""

    seconds: float
    solvers: tuple[str, ...]
    """Exact solvers in the order they are tried."""
    workers: int = 1
    seed: int = 0
    ticks: int | None = None
    stop_gap: float = 0.0


@dataclass(frozen=True, slots=True)
class _Candidate:
    solver: str
    target: Target
    objective: int
    not_disaggregated: int = 0


class _Epoch:
    """One run of the pipeline: the best candidate so far and the record of what happened."""

    def __init__(
        self, problem: Problem, running: tuple[Placement, ...], limits: Limits, check: Check
    ) -> None:
        self.problem = problem
        self.running = running
        self.limits = limits
        self.check = check
        self.began = time.monotonic()
        self.phases: dict[str, float] = {}
        self.rejected: list[Rejected] = []
        self.bound_note = ""
        nothing = Target(tuple(sorted(running, key=lambda placement: placement.job)))
        with self.phase("verify"):
            verification = check(nothing)
        doing_nothing = verification.objective
        self.idle = nothing
        # To do nothing is to break the promises that are due.
        legal = not verification.violations
        self.best = _Candidate("none", nothing, doing_nothing if legal else doing_nothing - _BREACH)
        # The problem's points are differences to leaving all as it is; those of a formulation are not.
        self.bound = doing_nothing + problem.ceiling

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    def offer(self, solver: str, ledger: Ledger, *, missed: int = 0) -> bool:
        """Keep the candidate if it breaks no rule and is at least as good; False if it breaks one."""
        target = ledger.target(self.running)
        with self.phase("verify"):
            verification = self.check(target)
        if verification.violations:
            self.rejected.append(Rejected(solver, verification.violations))
            return False
        if verification.objective >= self.best.objective:
            self.best = _Candidate(solver, target, verification.objective, missed)
        return True

    @property
    def proven(self) -> bool:
        gap = (self.bound - self.best.objective) / max(1, abs(self.best.objective))
        return gap <= self.limits.stop_gap

    def solution(self, greedy_objective: int, failures: list[tuple[str, str]]) -> Solution:
        optimal = self.best.objective >= self.bound
        fallback = None
        if failures and self.best.solver != failures[0][0]:
            reasons = "; ".join(f"{solver}: {reason}" for solver, reason in failures)
            fallback = Fallback(tried=failures[0][0], used=self.best.solver, reason=reasons)
        return Solution(
            status=SolveStatus.OPTIMAL if optimal else SolveStatus.FEASIBLE,
            solver=self.best.solver,
            target=self.best.target,
            objective=self.best.objective,
            bound=self.bound,
            greedy_objective=greedy_objective,
            seconds=time.monotonic() - self.began,
            phases=self.phases,
            fallback=fallback,
            rejected=tuple(self.rejected),
            not_disaggregated=self.best.not_disaggregated,
            bound_note=self.bound_note,
        )


def solve(problem: Problem, running: tuple[Placement, ...], limits: Limits, check: Check) -> Solution:
    """
    Answer a problem within limits; `check` is the verifier on the epoch's snapshot and policy.

    Never worse than greedy, nor than leaving all as it is, and never later than the limit by more than the
    time to place, verify and clean up, whatever an exact solver does. The bound is the least that was proven:
    at worst the problem's ceiling.
    """
    epoch = _Epoch(problem, running, limits, check)
    if problem.slots > 1:
        with epoch.phase("hold"):
            epoch.problem = hold(problem)
    with epoch.phase("greedy"):
        ledger = greedy(epoch.problem)
    if not epoch.offer(GREEDY, ledger) and epoch.problem.bookings:
        # Nothing but what was promised: whatever else went wrong, that is kept.
        kept = Ledger(epoch.problem)
        start_firm(kept)
        epoch.offer(GREEDY, kept)
    greedy_objective = epoch.best.objective
    failures: list[tuple[str, str]] = []
    if limits.solvers and not epoch.proven:
        _improve(epoch, failures)
    return epoch.solution(greedy_objective, failures)


def _improve(epoch: _Epoch, failures: list[tuple[str, str]]) -> None:
    """Try the exact solvers in turn until one answers."""
    limits = epoch.limits
    with epoch.phase("formulate"):
        x = Columns(epoch.problem)
        formulation = formulate(epoch.problem, x)
        hint = _hint(x, epoch)
    # Placing an answer takes up to four times as long as greedy does for one plan, with later starts eight
    # times; judging it takes as long as the plans so far.
    one_plan = epoch.phases["greedy"] / len(ways(epoch.problem))
    reserve = (4 if epoch.problem.slots == 1 else 8) * one_plan + epoch.phases["verify"]
    deadline = epoch.began + limits.seconds - reserve
    for solver in limits.solvers:
        if time.monotonic() >= deadline:
            why = f"no time left of {limits.seconds:g} s, of which placing its plan may take {reserve:.0f} s"
            failures.append((solver, why))
            continue
        budget = Budget(deadline, limits.workers, limits.seed, limits.ticks, limits.stop_gap)
        with epoch.phase("solve"):
            answer = solve_apart(SOLVERS[solver], formulation, budget, hint)
        if (fault := _fault(answer, formulation, epoch)) is not None:
            failures.append((solver, fault))
            continue
        bound_before = epoch.bound
        if answer.bound is not None:
            epoch.bound = min(epoch.bound, answer.bound)
        if answer.values is None:
            failures.append((solver, f"found no plan: {answer.detail}"))
            continue
        with epoch.phase("disaggregate"):
            placed, missed = disaggregate(epoch.problem, x.decode(answer.values))
        if not epoch.offer(solver, placed, missed=missed):
            failures.append((solver, "its plan broke a rule"))
            continue
        if epoch.best.objective > epoch.bound:
            epoch.bound_note = f"{solver}: claimed the bound {epoch.bound}, below its own verified plan"
            failures.append((solver, f"claimed the bound {epoch.bound}, below its own verified plan"))
            epoch.bound = bound_before
        if epoch.best.solver != solver:
            failures.append((solver, "its plan, once placed on nodes, scored less"))
        return


def _hint(x: Columns, epoch: _Epoch) -> Ints:
    """Values of all columns at the best plan so far, or at no change if some column for it is missing."""
    try:
        return x.encode(epoch.best.target)
    except KeyError as error:
        # A legal plan that posing does not offer: the solver starts from nothing instead of not at all.
        _LOG.warning("phase=formulate hint=none missing_column=%s", error)
        return x.encode(epoch.idle)


def _fault(answer: Answer, formulation: Formulation, epoch: _Epoch) -> str | None:
    """Why an answer cannot be used at all; a solver is believed only as far as it can be checked."""
    if answer.status in (SolveStatus.FAILED, SolveStatus.INFEASIBLE):
        return f"{answer.status}: {answer.detail}"
    if answer.bound is not None and answer.bound < epoch.best.objective:
        return f"claimed the bound {answer.bound}, below a verified plan of {epoch.best.objective}"
    if answer.status is SolveStatus.NO_ANSWER:
        return None
    if answer.values is None or answer.values.shape != formulation.upper.shape:
        return "gave no values for its columns"
    if (answer.values < 0).any() or (answer.values > formulation.upper).any():
        return "gave values outside their bounds"
    if broken := formulation.violated(answer.values):
        return f"broke {len(broken)} rows, the first of family {broken[0].family}"
    return None
