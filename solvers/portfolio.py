"""
The pipeline: greedy always answers; exact solvers and then neighbourhoods improve on it in time.

    greedy → bound and rounded vertex of the linear relaxation → exact optimum of the block model
           → placed on nodes → verified → neighbourhoods, each solved exactly, until the time is up → verified

The best verified plan wins, whoever made it.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from planner.models.formulation import formulate
from planner.models.formulation.columns import Columns
from planner.models.solution import Ended, SolveStatus
from planner.models.target import Target
from planner.solvers import SOLVERS
from planner.solvers.certificate import exact_bound
from planner.solvers.disaggregate import disaggregate
from planner.solvers.greedy import greedy
from planner.solvers.holding import hold, start_firm
from planner.solvers.interface import MANY_LATER, Budget, Headroom
from planner.solvers.ledger import Ledger
from planner.solvers.search import LAST_PLAN, NOBODY, Limits, Search
from planner.solvers.worker import run_apart, solve_apart

if TYPE_CHECKING:
    from planner.models.formulation.rows import Formulation, Ints
    from planner.models.placement import Placement
    from planner.models.problem import Problem
    from planner.models.solution import Solution
    from planner.solvers.interface import Answer, Floats
    from planner.solvers.search import Check, Watch

GREEDY: Final = "greedy"
REFINER: Final = "neighbourhoods"
REFINING: Final = "planner.solvers.refining:refine"
RELAXING: Final = "planner.solvers.milp:relax"

_SHARE_OF_RELAXATION: Final = 0.4
"""Of the time, at most."""

_SHARE_OF_SOLVERS: Final = 0.65
"""Of the time, before what they found is placed and refined."""

_LOG: Final = logging.getLogger(__name__)

__all__ = ["Limits", "solve"]


def solve(
    problem: Problem,
    running: tuple[Placement, ...],
    limits: Limits,
    check: Check,
    watch: Watch | None = None,
    *,
    warm: Target | None = None,
    settled: bool = False,
) -> Solution:
    """
    Answer a problem within limits; `check` is the verifier on the epoch's snapshot and policy.

    Never worse than greedy, nor than leaving all as it is, and never later than the limit by more than the
    time to place, verify and clean up, whatever an exact solver does. The bound is the least that was proven:
    at worst the problem's ceiling. `watch` is shown how the search goes. Once there is a plan an interruption
    (KeyboardInterrupt) ends the search with the best one; a second one is passed on.

    `warm` is a plan to begin with; of equally good ones it is kept. If all is `settled`, all stays as it is,
    and only the bound is looked for.
    """
    search = Search(problem, running, limits, check, watch)
    if settled:
        search.rest()
    elif warm is not None:
        search.offer(LAST_PLAN, warm)
    if problem.slots > 1:
        with search.phase("hold"):
            search.problem = hold(problem)
    search.greedy_objective = search.best.objective
    try:
        if not settled:
            _start(search)
        if not search.proven:
            _improve(search)
    except KeyboardInterrupt:
        if search.best.solver == NOBODY:
            raise
        search.ended = Ended.INTERRUPTED
    return search.solution()


def _start(search: Search) -> None:
    """Greedy's plan."""
    search.tell(GREEDY)
    with search.phase("greedy"):
        # With ticks the clock decides nothing.
        deadline = None if search.limits.ticks is not None else search.deadline
        ledger = greedy(search.problem, deadline=deadline)
    if not search.offer(GREEDY, ledger.target(search.running)) and search.problem.bookings:
        # Nothing but what was promised: whatever else went wrong, that is kept.
        kept = Ledger(search.problem)
        start_firm(kept)
        search.offer(GREEDY, kept.target(search.running))
    search.greedy_objective = search.judged


def _improve(search: Search) -> None:
    """Get a bound; try the exact solvers in turn until one answers; then refine the best plan."""
    limits = search.limits
    if time.monotonic() >= search.deadline:
        search.ended = Ended.TIME
        search.failures += [
            (solver, f"no time left of {limits.seconds:g} s") for solver in limits.solvers[:1]
        ]
        return
    with search.phase("formulate"):
        x = Columns(search.problem)
        question = _Question(search, x, formulate(search.problem, x))
    resting = not limits.solvers or search.ended is Ended.SETTLED
    # With many later starts the relaxation takes long, and HiGHS begins with it anyhow.
    if resting or len(question.formulation.later) <= MANY_LATER:
        question.relax(placing=not resting)
    if resting or search.proven:
        return
    if any(question.ask(solver) for solver in limits.solvers) and not search.proven:
        _refine(search)


class _Question:
    """The block model of an epoch, to be put to one solver after the other."""

    def __init__(self, search: Search, x: Columns, formulation: Formulation) -> None:
        self.search, self.x, self.formulation = search, x, formulation
        self._bound: int | None = None
        self._found: int | None = None

    def relax(self, *, placing: bool) -> None:
        """Get a bound from the linear relaxation, and place a vertex of it, rounded."""
        search = self.search
        now = time.monotonic()
        shared = placing and search.limits.ticks is None
        deadline = now + (_SHARE_OF_RELAXATION if shared else 1.0) * (search.deadline - now)
        answer = self._answer("relaxation", RELAXING, deadline, self.x.encode(search.idle))
        guess = answer.values
        if answer.multipliers is None:
            search.bound_note = f"relaxation: {answer.detail}"
        if not placing or guess is None or guess.shape != self.formulation.upper.shape:
            return
        if search.limits.ticks is not None or self._time_to_place() < search.deadline - time.monotonic():
            self._place("relaxation", guess.clip(0, self.formulation.upper))

    def ask(self, solver: str) -> bool:
        """Ask one solver and place what it answers; False if the next one is to be tried."""
        search, limits, fail = self.search, self.search.limits, self.search.failures.append
        now = time.monotonic()
        left = search.deadline - now - self._time_to_place()
        placing = left > 0
        share = 1.0 if limits.ticks is not None else _SHARE_OF_SOLVERS
        # Without time to place a plan a bound is still worth having.
        deadline = now + share * left if placing else search.deadline
        answer = self._answer(solver, SOLVERS[solver], deadline, self._hint())
        if (fault := _fault(answer, self.formulation, search)) is not None:
            fail((solver, fault))
            return False
        search.believe(solver, answer.bound)
        if not placing:
            fail((solver, f"no time left of {limits.seconds:g} s to place what it found"))
            search.ended = Ended.TIME
            return True
        if answer.values is None or answer.status is SolveStatus.NO_ANSWER:
            fail((solver, f"found no plan: {answer.detail}"))
            return False
        if not self._place(solver, answer.values):
            fail((solver, "its plan broke a rule"))
            return False
        if search.best.solver != solver:
            fail((solver, "its plan, once placed on nodes, scored less"))
        # With ticks too: what the clock has ended need not come out the same again.
        if time.monotonic() >= deadline:
            search.ended = Ended.TIME
        elif limits.ticks is not None:
            search.ended = Ended.TICKS
        return True

    def _answer(self, stage: str, entry: str, deadline: float, hint: Ints) -> Answer:
        limits = self.search.limits
        budget = Budget(deadline, limits.workers, limits.seed, limits.ticks, limits.stop_gap)
        self._bound = self._found = None
        with self.search.phase("solve"):
            return solve_apart(entry, self.formulation, budget, hint, partial(self._hear, stage))

    def _hear(self, stage: str, answer: Answer | None) -> None:
        """Show what a solver has on the way."""
        search = self.search
        if answer is not None:
            if answer.multipliers is not None:
                self._certify(stage, answer.multipliers)
            # Not believed before the solver has ended well; shown all the same.
            if answer.bound is not None and answer.bound >= search.best.objective:
                self._bound = answer.bound
            values = answer.values
            found = values is not None and values.shape == self.formulation.upper.shape
            if values is not None and found and answer.status is not SolveStatus.NO_ANSWER:
                self._found = self.formulation.points(values)
        search.tell(stage, self._found, self._bound)

    def _hint(self) -> Ints:
        """Values of all columns at the best plan so far, or at no change if some column for it is missing."""
        try:
            return self.x.encode(self.search.best.target)
        except KeyError as error:
            # A legal plan that posing does not offer: the solver starts from nothing instead of not at all.
            _LOG.warning("phase=formulate hint=none missing_column=%s", error)
            return self.x.encode(self.search.idle)

    def _place(self, solver: str, values: Ints) -> bool:
        """Put an answer on nodes and have it verified; False if it breaks a rule."""
        search = self.search
        deadline = None if search.limits.ticks is not None else search.deadline
        with search.phase("disaggregate"):
            placed, missed = disaggregate(search.problem, self.x.decode(values), deadline=deadline)
        target, exact = placed.target(search.running), solver in SOLVERS
        return search.offer(solver, target, missed=missed, stage="place", exact=exact)

    def _time_to_place(self) -> float:
        """Seconds that placing and verifying a plan takes, as far as greedy's plan tells."""
        one_plan = self.search.phases["greedy"]
        return (1 if self.search.problem.slots == 1 else 4) * one_plan + self.search.one_check

    def _certify(self, stage: str, multipliers: Floats) -> None:
        """Take over the bound that follows from multipliers, by whomever they were found."""
        if multipliers.shape == (len(self.formulation.rows),):
            with self.search.phase("certify"):
                bound = exact_bound(self.formulation, multipliers) + self.formulation.constant
            self.search.believe(f"{stage}'s multipliers", bound)


def _refine(search: Search) -> None:
    """Improve the best plan neighbourhood by neighbourhood, in a process that can be killed."""
    limits = search.limits
    left = search.deadline - time.monotonic()
    if search.problem.slots > 1 or left <= search.one_check:
        return
    budget = Budget(time.monotonic() + left, limits.workers, limits.seed, limits.ticks, limits.stop_gap)
    begun_at, newest = search.best.objective, list[Target]()
    asked = search.best.solver in limits.solvers
    solver = search.best.solver if asked else REFINER

    def listen(message: object) -> None:
        if isinstance(message, Target):
            newest[:] = [message]
        elif isinstance(message, Headroom):
            search.believe("configurations", begun_at + message.points)
        search.tell(REFINER)
        # In between only if there is time for another check at the end.
        spare = budget.deadline - time.monotonic() > 4 * search.one_check
        if newest and limits.ticks is None and spare:
            search.offer(solver, newest.pop(), stage=REFINER)
        if limits.ticks is None and search.proven:
            raise _EnoughError

    with search.phase("refine"), suppress(_EnoughError):
        arguments = (search.problem, search.running, search.best.target, budget)
        outcome = run_apart(REFINING, arguments, budget.seconds, listen)
        late = outcome.killed or time.monotonic() >= budget.deadline
        rested = Ended.EXHAUSTED if limits.ticks is None else Ended.TICKS
        search.ended = Ended.TIME if late or search.ended is Ended.TIME else rested
        if outcome.failure:
            search.failures.append((REFINER, outcome.failure))
    if newest:
        search.offer(solver, newest.pop(), stage=REFINER)


class _EnoughError(Exception):
    """The gap is as small as it has to be."""


def _fault(answer: Answer, formulation: Formulation, search: Search) -> str | None:
    """Why an answer cannot be used at all; a solver is believed only as far as it can be checked."""
    if answer.status in (SolveStatus.FAILED, SolveStatus.INFEASIBLE):
        return f"{answer.status}: {answer.detail}"
    if answer.bound is not None and answer.bound < search.best.objective:
        return f"claimed the bound {answer.bound}, below a verified plan of {search.best.objective}"
    if answer.status is SolveStatus.NO_ANSWER:
        return None
    if answer.values is None or answer.values.shape != formulation.upper.shape:
        return "gave no values for its columns"
    if (answer.values < 0).any() or (answer.values > formulation.upper).any():
        return "gave values outside their bounds"
    if broken := formulation.violated(answer.values):
        return f"broke {len(broken)} rows, the first of family {broken[0].family}"
    return None
