"""CP-SAT = MILP = reference model = what is placed, on random small instances; greedy ≤ optimum ≤ bound."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import SolveStatus
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat, milp
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.targets.to_target import target_of
from tests.oracle.reference import ReferenceColumns, reference
from tests.support.oracles.overcommitted import overfull
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, nothing_changed

pytestmark = pytest.mark.slow

"""A thousand instances of each sort, where `make test` has no patience for them."""

CHUNKS = 10 if EVERY_SEED else 2
DIVISIBLE, MIXED, FULL = (100, 100, 100) if EVERY_SEED else (50, 25, 25)
"""Instances a chunk."""

RELAXED = {"anti_affinity", "fragmentation", "interference", "power"}
"""What the block model knows by group only, so that its optimum is a bound even on divisible sizes."""

EXACT = tuple(feature for feature in instances.FEATURES if feature not in RELAXED)


@dataclass(frozen=True)
class Found:
    """Points beyond doing nothing, by every way to find some."""

    exact: int
    """Optimum of the plain model."""
    bound: int
    """Optimum of the block model."""
    greedy: int
    placed: int
    """The block model's optimum, realized."""
    missed: int
    """Jobs of it that found no place."""


def optimum(solve, formulation, hint):
    """What a solver proves to be best, with its values: the most that any target scores."""
    answer = solve(formulation, Budget(deadline=time.monotonic() + 60), hint, lambda _: None)
    assert answer.status is SolveStatus.OPTIMAL
    assert formulation.violated_rows(answer.values) == ()
    points = formulation.points(answer.values)
    assert points == answer.bound + formulation.constant
    return points, answer.values


def cross_check(snapshot, policy):
    """Solve one instance every way; every plan is legal and worth what the verifier says."""
    problem = build_problem(snapshot, policy)
    x, plain = Columns(problem), ReferenceColumns(problem)
    block, spelled_out = formulate(problem, x), reference(problem, plain)
    idle = nothing_changed(snapshot)
    nothing = judged(snapshot, policy, idle).objective
    ledger = greedy(problem)
    found = target_of(ledger, snapshot.running_placements)
    hint = encode(x, found)

    by_cpsat, _ = optimum(cpsat.solve, block, hint)
    by_milp, values = optimum(milp.solve, block, hint)
    exact, _ = optimum(cpsat.solve, spelled_out, plain.encode(found))
    placed, missed = disaggregate(problem, decode(x, values))

    assert by_cpsat == by_milp
    points = []
    for answer in (ledger, placed):
        verification = judged(snapshot, policy, target_of(answer, snapshot.running_placements))
        assert verification.violations == ()
        points.append(verification.objective - nothing)
    return Found(
        exact - spelled_out.points(plain.encode(idle)),
        by_milp - block.points(encode(x, idle)),
        *points,
        missed,
    )


def seeds(chunk, count):
    return range(chunk * count, (chunk + 1) * count)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_exact_on_divisible_sizes(chunk):
    tally = Counter()
    for seed in seeds(chunk, DIVISIBLE):
        snapshot = instances.divisible(seed)
        found = cross_check(snapshot, instances.POLICY)
        if overfull(build_problem(snapshot, instances.POLICY)):
            tally["overfull"] += 1
            assert found.placed <= found.bound, seed
            continue
        assert found.greedy <= found.exact == found.bound == found.placed, seed
        assert found.missed == 0, seed
        tally["greedy is worse"] += found.greedy < found.exact
        tally["something is placed"] += found.exact > 0
    assert tally["greedy is worse"] >= 2
    told = DIVISIBLE - tally["overfull"]
    assert told >= DIVISIBLE // 2
    assert tally["something is placed"] >= told * 3 // 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_exact_with_quotas_of_cpu_cores_and_memory(chunk):
    tally = Counter()
    for seed in seeds(chunk, DIVISIBLE):
        snapshot = instances.cpu_limited(instances.divisible)(seed)
        problem = build_problem(snapshot, instances.POLICY)
        if overfull(problem):
            continue
        found = cross_check(snapshot, instances.POLICY)
        assert found.greedy <= found.exact == found.bound == found.placed, seed
        free = cross_check(instances.divisible(seed), instances.POLICY)
        assert found.exact <= free.exact, seed
        tally["a quota binds"] += found.exact < free.exact
        tally["something is placed"] += found.exact > 0
    assert min(tally["a quota binds"], tally["something is placed"]) >= 2, tally


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_a_bound_on_any_sizes(chunk):
    tally = Counter()
    for seed in seeds(chunk, MIXED):
        found = cross_check(instances.mixed(seed), instances.POLICY)
        assert found.greedy <= found.exact <= found.bound, seed
        assert found.placed <= found.exact, seed
        tally["the bound is loose"] += found.exact < found.bound
        tally["something is placed"] += found.exact > 0
    assert tally["something is placed"] >= MIXED * 3 // 4
    assert tally["the bound is loose"] < MIXED // 4


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_nearly_exact_on_divisible_sizes_with_most_of_what_there_is(chunk):
    """Preemption, resizing, moves, MIG, pools, guarantees, domains, draining and the rest, all mixed."""
    tally = checked(seeds(chunk, FULL), lambda seed: instances.everything(seed, features=EXACT))

    assert tally["bound reached"] >= tally["all"] * 9 // 10, tally
    assert tally["optimum placed"] >= tally["all"] * 9 // 10, tally
    assert tally["greedy is worse"] >= 1, tally
    assert tally["something changes"] >= tally["all"] // 2, tally


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_block_model_is_a_bound_whatever_is_mixed(chunk):
    makers = (instances.everything, instances.everything_mixed)

    tally = checked(seeds(chunk, FULL), lambda seed: makers[seed % 2](seed))

    assert tally["bound reached"] >= tally["all"] * 6 // 10, tally
    assert tally["optimum placed"] >= tally["all"] * 7 // 10, tally


def checked(seeds, make):
    """Cross-check instances; how often each way was as good as the best."""
    tally = Counter()
    for seed in seeds:
        instance = make(seed)
        if overfull(build_problem(instance.snapshot, instance.policy)):
            continue
        found = cross_check(instance.snapshot, instance.policy)
        assert max(found.greedy, found.placed) <= found.exact, seed
        assert found.exact <= found.bound, seed
        tally["all"] += 1
        tally["something changes"] += found.exact > 0
        tally["greedy is worse"] += found.greedy < found.exact
        tally["bound reached"] += found.exact == found.bound
        tally["optimum placed"] += found.exact == max(found.greedy, found.placed)
    return tally
