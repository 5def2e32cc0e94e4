"""On instances small enough to try everything, models and portfolio are held against the verifier itself."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from gpuplan.models.plan.solution import SolveStatus
from gpuplan.models.plan.violation import Rule
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.oracle.reference import ReferenceColumns, reference
from tests.support.harness.portfolio_answers import held_against_all_plans, without_neighbourhoods
from tests.support.oracles.brute_force import offered
from tests.support.oracles.oracle_decode import realized
from tests.support.oracles.overcommitted import overfull
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, nothing_changed

pytestmark = pytest.mark.slow

CHUNKS, SEEDS = (4, 250) if EVERY_SEED else (1, 15)
"""Chunks of seeds, and instances a chunk."""


def plain_optimum(snapshot, policy, problem):
    """The plain model's optimum, and the verifier's answer to the target that has it."""
    x = ReferenceColumns(problem)
    formulation = reference(problem, x)
    hint = x.encode(nothing_changed(snapshot))
    answer = cpsat.solve(formulation, Budget(time.monotonic() + 600), hint, lambda _: None)
    assert answer.status is SolveStatus.OPTIMAL
    verification = judged(snapshot, policy, realized(snapshot, x, answer.values))
    return formulation.points(answer.values), verification


def worlds(chunk):
    """(seed, snapshot, policy, disruptions)"""
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        instance = (instances.cpu_limited(instances.tiny) if seed % 4 == 1 else instances.tiny)(seed)
        problem = build_problem(instance.snapshot, instance.policy)
        yield seed, instance.snapshot, instance.policy, offered(problem)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_models_and_portfolio_reach_the_best_of_all_plans(monkeypatch, chunk):
    without_neighbourhoods(monkeypatch)
    tally = Counter()
    for seed, snapshot, policy, best, solution in held_against_all_plans(worlds(chunk), tally):
        problem = build_problem(snapshot, policy)
        if overfull(problem):
            tally["overfull"] += 1
            continue
        optimum, verification = plain_optimum(snapshot, policy, problem)
        # What the plain model finds is legal, but for moves that wait for each other.
        waits = {each.rule for each in verification.violations} == {Rule.ORDER}
        assert waits or verification.violations == (), seed
        assert verification.objective == optimum, seed
        assert optimum == best.objective or (waits and optimum > best.objective), seed
        tally["changed"] += best.target != nothing_changed(snapshot)
        tally["reached"] += solution.objective == best.objective
        tally["all"] += 1
    assert tally["too large"] <= SEEDS // 4, tally
    assert tally["changed"] >= SEEDS // 3, tally
    assert tally["reached"] >= tally["all"] * 3 // 4, tally
