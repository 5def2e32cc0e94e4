"""Priorities one after the other: plans, and the verifier, are held against all plans that there are."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption, Policy, PriorityOrder, PriorityPolicy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import exact_run, portfolio
from gpuplan.solvers.portfolio import Limits
from tests.support.builders import build
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.harness.portfolio_answers import without_neighbourhoods
from tests.support.oracles.brute_force import TooLargeError, offered
from tests.support.oracles.priority_oracle import best_in_order, could_have_come_first, world
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged

pytestmark = pytest.mark.slow

CHUNKS = 4 if EVERY_SEED else 1
SEEDS = 125 if EVERY_SEED else 16
"""Instances a chunk, of each sort."""

IN_ORDER = PriorityPolicy(order=PriorityOrder.TIERS)


def worlds(chunk):
    """(seed, snapshot, policy): crowded ones, and ones with a bit of all that a cluster may have."""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        yield (
            seed,
            world(seed),
            build.by_value(priority=IN_ORDER, disruption=Disruption(preempt=seed % 3 > 0)),
        )
        if not EVERY_SEED and seed % 4:
            continue
        instance = instances.tiny(seed)
        yield -seed, instance.snapshot, instance.policy.model_copy(update={"priority": IN_ORDER})


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_plans_are_best_for_one_priority_after_the_other(monkeypatch, chunk):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    for seed, snapshot, policy in worlds(chunk):
        problem = build_problem(snapshot, policy)
        try:
            best, tried = best_in_order(snapshot, policy, problem, offered(problem))
        except TooLargeError:
            tally["too large"] += 1
            continue
        solution = portfolio.solve(
            problem,
            snapshot.running_placements,
            Limits(30.0, ("cpsat",)),
            partial(judged, snapshot, policy),
        )

        assert judged(snapshot, policy, solution.target).violations == (), seed
        served = [
            each for each in tried if all(each.points[one.priority] >= one.points for one in solution.stages)
        ]
        assert max(each.objective for each in served) <= solution.bound, seed
        # Whatever greedy is said to bring is a plan that keeps the order as well.
        assert min(each.objective for each in served) <= solution.greedy_objective <= solution.objective, seed
        optimal = solution.status is SolveStatus.OPTIMAL
        assert solution.objective in best or not optimal, seed
        tally.update(
            all=1,
            several=len(problem.priorities) > 1,
            differs=max(each.objective for each in tried) not in best,
            reached=solution.objective in best,
            optimal=optimal,
            rejected=bool(solution.rejected),
        )
    assert tally["too large"] <= SEEDS, tally
    assert tally["differs"] >= SEEDS // 20, tally
    assert tally["reached"] >= tally["all"] * 4 // 5, tally


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_verifier_reports_each_job_that_could_have_had_the_place_of_a_lower_one(chunk):
    tally = Counter()
    policy = Policy(priority=IN_ORDER)
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        snapshot = world(seed)
        problem = build_problem(snapshot, policy)
        try:
            _, tried = best_in_order(snapshot, policy, problem, offered(problem))
        except TooLargeError:
            continue
        guaranteed = any(queue.quota and queue.quota.guarantee for queue in snapshot.queues)
        draw = random.Random(seed)
        for each in draw.sample(tried, min(len(tried), 40)):
            expected = could_have_come_first(snapshot, tried, each)
            if expected is None:
                continue
            violations = judged(snapshot, policy, each.target).violations
            found = {one.subject.split()[1] for one in violations if one.rule is Rule.PRIORITY}
            # What a queue is guaranteed goes before priorities.
            assert found <= expected, (seed, each.target, found, expected)
            # Of jobs that are alike one is named.
            assert guaranteed or bool(found) == bool(expected), (seed, each.target, found, expected)
            tally[bool(found)] += 1
    assert min(tally[True], tally[False]) >= SEEDS // 20, tally


def test_one_gpu_of_high_priority_is_served_before_eight_of_low_priority(monkeypatch):
    monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
    jobs = [build.job("large", gpus=8, priority=1), build.job("small", gpus=1, priority=10)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)

    def started(order):
        policy = build.by_value(priority=PriorityPolicy(order=order))
        check = partial(judged, snapshot, policy)
        solution = portfolio.solve(build_problem(snapshot, policy), (), Limits(30.0, ("cpsat",)), check)
        assert solution.status is SolveStatus.OPTIMAL
        return [placement.job for placement in solution.target.placements]

    assert started(PriorityOrder.TIERS) == ["small"]
    assert started(PriorityOrder.WEIGHTS) == ["large"]
