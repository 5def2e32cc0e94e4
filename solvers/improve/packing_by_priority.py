"""
Pack all nodes by column generation while greedy plans, one priority after the other.

It is asked in a process of its own where most jobs ask for odd shares of GPUs (decision 0047), and begins
with nothing: what it finds does not depend on greedy's plan.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.improve.column_generation import place_solution
from gpuplan.solvers.improve.column_generation.master import Master
from gpuplan.solvers.improve.column_generation.pricing_loop import generate_columns
from gpuplan.solvers.improve.column_generation.subproblem import covers_whole_problem, extract_repack_problem
from gpuplan.solvers.improve.odd_shares import Packing
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.placement import Placement
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.column_generation.master import MasterSolution
    from gpuplan.solvers.improve.column_generation.subproblem import RepackProblem
    from gpuplan.solvers.interface import Budget


def pack_by_priority(
    problem: Problem,
    running: tuple[Placement, ...],
    budget: Budget,
    report: Callable[[object], None],
) -> None:
    """
    Pack the jobs of the highest priority, then with those of the next, and so on; report the plan.

    What a priority earns is a floor for those after it. Jobs that are not plain have what is left. Without
    plain jobs nothing is reported.
    """
    ledger, params = Ledger(problem, budget.params.placement), budget.params.column_generation
    whole, base = covers_whole_problem(ledger), ledger.objective
    question = extract_repack_problem(ledger, None, params)
    if not question.offers:
        return
    stages = _Stages(ledger, question, budget)
    for position, priority in enumerate(problem.priorities):
        now = time.monotonic()
        share = params.share_of_repacking / (len(problem.priorities) - position)
        stages.pack(priority, now + share * (budget.deadline - now))
    if stages.answer is None:
        return
    place_solution(ledger, question, stages.answer)
    fill_free_capacity(ledger)
    # A search for the places of shares may give up. Then less is earned than what the proofs are about.
    valid = whole and all(ledger.served[priority] >= floor for priority, floor in stages.floors.items())
    bound = None if stages.bound is None or not valid else base + stages.bound
    report(Packing(target_of(ledger, running), tuple(stages.proven) if valid else (), bound))


class _Stages:
    """One master for all priorities, so that places are taken once."""

    def __init__(self, ledger: Ledger, question: RepackProblem, budget: Budget) -> None:
        self._question, self._charges, self._seed = question, ledger.problem.charges, budget.seed
        floors = tuple((each, 0) for each in ledger.problem.priorities)
        self._master = Master(ledger, question, budget.seed, floors)
        self.answer: MasterSolution | None = None
        self.proven: list[int] = []
        """Priorities for which no packing is better that brings the higher ones as much."""
        self.floors: dict[int, int] = {}
        """What each priority earns."""
        self.bound: int | None = None
        """Upper bound on the points of all packings that bring all priorities but the last as much."""

    def pack(self, priority: int, deadline: float) -> None:
        """Admit the jobs of a priority."""
        master, params, now = self._master, self._question.params, time.monotonic()
        master.admit(priority)
        found = generate_columns(
            master,
            self._question,
            self._charges,
            deadline=now + params.share_of_pricing * (deadline - now),
            seed=self._seed,
        )
        self.bound = found.bound
        known = self.answer
        if known is None or found.bound is None or found.bound > (1 + params.worthwhile) * known.points:
            answer = master.maximize(deadline, inf if found.bound is None else found.bound)
            if answer is not None and (known is None or answer.points > known.points):
                self.answer = answer
        if self.answer is None:
            return
        if found.bound is not None and self.answer.points >= found.bound:
            self.proven.append(priority)
        self.floors[priority] = master.keep(priority, self.answer)
