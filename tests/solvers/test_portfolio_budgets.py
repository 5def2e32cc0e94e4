"""Plans of worlds in which disruption budgets bind, against everything that the verifier allows."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.harness.portfolio_answers import answer, held_against_all_plans, without_neighbourhoods
from tests.support.oracles.brute_force import offered
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import budget_worlds
from tests.support.strategies.random_targets import judged, nothing_changed

pytestmark = pytest.mark.slow

CHUNKS, SEEDS = (4, 150) if EVERY_SEED else (1, 15)
"""Chunks of seeds, and worlds a chunk."""


def without_budgets(policy):
    """The policy without disruption budgets."""
    rules = policy.disruption.model_copy(update={"budgets": ()})
    return policy.model_copy(update={"disruption": rules})


def worlds(chunk):
    """(seed, snapshot, policy, disruptions that no budget forbids by itself), of one chunk of seeds."""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot, policy = budget_worlds.world(seed, nodes=2, most=4, waiting=2)
        yield seed, snapshot, policy, offered(build_problem(snapshot, without_budgets(policy)))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_proven_is_the_best_of_all_plans_within_the_budgets(monkeypatch, chunk):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    for _, snapshot, policy, best, solution in held_against_all_plans(worlds(chunk), tally):
        tally[solution.status] += 1
        tally["changed"] += best.target != nothing_changed(snapshot)
        tally["bound by a budget"] += bool(build_problem(snapshot, policy).disruption_limits)
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

        greedily = judged(snapshot, policy, target_of(greedy(problem), snapshot.running_placements))
        assert greedily.violations == (), seed
        if seed % 5 == 0:
            solution = answer(snapshot, policy, solvers=("milp",), seconds=3.0)
            assert solution.objective >= greedily.objective, seed
        unlimited = target_of(greedy(free), snapshot.running_placements)
        tally["binds"] += bool(judged(snapshot, policy, unlimited).violations)
        tally["disrupts"] += bool(
            {each.job for each in snapshot.running_placements}
            and greedily.terms.get("preemption", 0) + greedily.terms.get("migration", 0) < 0
        )
    assert tally["binds"] >= SEEDS // 3, tally
    assert tally["disrupts"] >= SEEDS // 3, tally
