"""The portfolio's answer to small instances, held against the best of all plans."""

from __future__ import annotations

from functools import partial

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, pipeline, portfolio
from gpuplan.solvers.portfolio import Limits
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.oracles.brute_force import TooLargeError, best_of_all
from tests.support.strategies.random_targets import judged


def answer(snapshot, policy, *, solvers=("cpsat",), seconds=60.0):
    """What the portfolio answers, none of its answers rejected."""
    solution = portfolio.solve(
        build_problem(snapshot, policy),
        snapshot.running_placements,
        Limits(seconds, solvers),
        partial(judged, snapshot, policy),
    )
    assert solution.rejected == ()
    return solution


def without_neighbourhoods(monkeypatch):
    """Solvers in this process, and no search after them: what is proven is proven by the model alone."""
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    monkeypatch.setattr(pipeline, "_run_lns", lambda _: None)


def held_against_all_plans(worlds, tally):
    """
    (seed, snapshot, policy, best plan, answer) of each world in which all plans can be tried.

    No answer is better than the best plan, no bound below it, and what is called optimal is as good.

    Parameters
    ----------
    worlds
        (seed, snapshot, policy, fates): `fates` as `best_of_all` takes them.
    tally
        Counts the worlds that are too large.
    """
    for seed, snapshot, policy, fates in worlds:
        try:
            best = best_of_all(snapshot, policy, fates=fates)
        except TooLargeError:
            tally["too large"] += 1
            continue
        solution = answer(snapshot, policy)

        assert solution.objective <= best.objective, seed
        assert solution.bound is None or solution.bound >= best.objective, seed
        if solution.status is SolveStatus.OPTIMAL:
            assert solution.objective == best.objective, seed
        yield seed, snapshot, policy, best, solution
