"""Plans of worlds in which disruption budgets bind, against everything that the verifier allows."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, pipeline, portfolio
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.portfolio import Limits
from gpuplan.solvers.targets.to_target import target_of
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.oracles.brute_force import TooLargeError, best_of_all, offered
from tests.support.strategies import budget_worlds
from tests.support.strategies.random_targets import judged, nothing_changed

pytestmark = pytest.mark.slow

EVERY_SEED = bool(os.environ.get("GPUPLAN_EVERY_SEED"))
CHUNKS = 4
SEEDS = 150 if EVERY_SEED else 15
"""Worlds a chunk."""


def without_budgets(policy):
    """The policy without disruption budgets."""
    rules = policy.disruption.model_copy(update={"budgets": ()})
    return policy.model_copy(update={"disruption": rules})


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_proven_is_the_best_of_all_plans_within_the_budgets(monkeypatch, chunk):
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    monkeypatch.setattr(pipeline, "_run_lns", lambda _: None)
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot, policy = budget_worlds.world(seed, nodes=2, most=4, waiting=2)
        problem = build_problem(snapshot, policy)
        # What no budget forbids by itself is offered without budgets too.
        fates = offered(build_problem(snapshot, without_budgets(policy)))
        try:
            best = best_of_all(snapshot, policy, fates=fates)
        except TooLargeError:
            tally["too large"] += 1
            continue

        solution = portfolio.solve(
            problem,
            snapshot.running_placements,
            Limits(60.0, ("cpsat",)),
            partial(judged, snapshot, policy),
        )

        assert solution.rejected == (), seed
        assert solution.objective <= best.objective, seed
        assert solution.bound is None or solution.bound >= best.objective, seed
        if solution.status is SolveStatus.OPTIMAL:
            assert solution.objective == best.objective, seed
        tally[solution.status] += 1
        tally["changed"] += best.target != nothing_changed(snapshot)
        tally["bound by a budget"] += bool(problem.disruption_limits)
    assert tally[SolveStatus.OPTIMAL] >= SEEDS * 3 // 4 - tally["too large"], tally
    assert tally["changed"] >= SEEDS // 3, tally
    assert tally["bound by a budget"] >= SEEDS // 10, tally


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_greedy_and_neighbourhoods_keep_the_budgets_of_busy_clusters(monkeypatch, chunk):
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot, policy = budget_worlds.world(seed, nodes=8, most=24, waiting=12)
        problem, free = build_problem(snapshot, policy), build_problem(snapshot, without_budgets(policy))

        answer = judged(snapshot, policy, target_of(greedy(problem), snapshot.running_placements))
        assert answer.violations == (), seed
        if seed % 5 == 0:
            solution = portfolio.solve(
                problem,
                snapshot.running_placements,
                Limits(3.0, ("milp",)),
                partial(judged, snapshot, policy),
            )
            assert solution.rejected == (), seed
            assert solution.objective >= answer.objective, seed
        unlimited = target_of(greedy(free), snapshot.running_placements)
        tally["binds"] += bool(judged(snapshot, policy, unlimited).violations)
        tally["disrupts"] += bool(
            {each.job for each in snapshot.running_placements}
            and answer.terms.get("preemption", 0) + answer.terms.get("migration", 0) < 0
        )
    assert tally["binds"] >= SEEDS // 3, tally
    assert tally["disrupts"] >= SEEDS // 3, tally
