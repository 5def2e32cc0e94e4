"""CP-SAT = MILP = reference model = what is placed, on random small instances; greedy ≤ optimum ≤ bound."""

from __future__ import annotations

import time
from collections import Counter

import instances
import pytest

from planner.models.formulation import formulate
from planner.models.formulation.columns import Columns
from planner.models.formulation.reference import ReferenceColumns, reference
from planner.models.solution import SolveStatus
from planner.models.verifier import verify
from planner.posing import pose
from planner.solvers import cpsat, milp
from planner.solvers.disaggregate import disaggregate
from planner.solvers.greedy import greedy
from planner.solvers.interface import Budget

CHUNKS, SEEDS = 10, 50


def optimum(solve, formulation, hint):
    answer = solve(formulation, Budget(deadline=time.monotonic() + 60), hint, lambda _: None)
    assert answer.status is SolveStatus.OPTIMAL
    assert formulation.violated(answer.values) == ()
    assert formulation.points(answer.values) == answer.bound
    return answer


def cross_check(snapshot):
    """Solve one instance every way; (reference optimum, block optimum, greedy's, placed, jobs missed)."""
    policy = instances.POLICY
    problem = pose(snapshot, policy)
    x, plain = Columns(problem), ReferenceColumns(problem)
    block, spelled_out = formulate(problem, x), reference(problem, plain)
    ledger = greedy(problem)
    starts = ledger.placements()
    hint = x.encode(starts)

    by_cpsat, by_milp = optimum(cpsat.solve, block, hint), optimum(milp.solve, block, hint)
    exact = optimum(cpsat.solve, spelled_out, plain.encode(starts))
    placed, missed = disaggregate(problem, x, by_milp.values)

    assert by_cpsat.bound == by_milp.bound
    for answer in (ledger, placed):
        verification = verify(snapshot, policy, (*snapshot.running_placements, *answer.placements()))
        assert verification.violations == ()
        assert verification.objective == answer.objective
    return exact.bound, by_milp.bound, ledger.objective, placed.objective, missed


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_exact_on_divisible_sizes(chunk):
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        exact, block, by_greedy, placed, missed = cross_check(instances.divisible(seed))
        assert by_greedy <= exact == block == placed, seed
        assert missed == 0, seed
        tally["greedy is worse"] += by_greedy < exact
        tally["something is placed"] += exact > 0
    assert tally["greedy is worse"] >= 2
    assert tally["something is placed"] >= SEEDS * 3 // 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_a_bound_on_any_sizes(chunk):
    tally = Counter()
    for seed in range(chunk * SEEDS, (chunk + 1) * SEEDS):
        exact, block, by_greedy, placed, _ = cross_check(instances.mixed(seed))
        assert by_greedy <= exact <= block, seed
        assert placed <= exact, seed
        tally["the bound is loose"] += exact < block
        tally["something is placed"] += exact > 0
    assert tally["something is placed"] >= SEEDS * 3 // 4
    assert tally["the bound is loose"] < SEEDS // 4
