"""The finer model: tighter than the block model, never below a plan, and its answers have places."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import DesiredState
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import milp
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve.finer_model import by_kind, finer_problem, finer_size, solve_finer_model
from gpuplan.solvers.improve.large_neighbourhood import improve_by_lns
from gpuplan.solvers.interface import Budget, Headroom
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.oracles.brute_force import TooLargeError, best_of_all, offered
from tests.support.seeds import examples
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, legal_target, nothing_changed

POLICY = build.by_value(priority=build.BY_WEIGHT)


def budget(seconds=60.0, ticks=None):
    return Budget(time.monotonic() + seconds, ticks=ticks)


def optimum(problem):
    formulation = formulate(problem, Columns(problem))
    nothing = np.zeros(len(formulation.upper), dtype=np.int64)
    return milp.solve(formulation, budget(), nothing, lambda _: None).bound


def partly_held(*waiting):
    """Two nodes of eight GPUs, of each of which a job of priority 0 holds one."""
    nodes = build.cluster(2)
    holders = [
        build.job(f"old-{node.name}", gpus=1, at=[build.replica(node.name, gpus=(0,))]) for node in nodes
    ]
    return build_problem_of(build.snapshot(nodes=nodes, jobs=[*holders, *waiting]))


def build_problem_of(snapshot):
    return snapshot, build_problem(snapshot, POLICY)


def test_nodes_that_differ_in_nothing_are_one_kind():
    nodes = build.cluster(6)
    jobs = [build.job(f"all-{n}", gpus=8, at=[build.replica(f"n{n}", gpus=range(8))]) for n in (0, 1, 2)]
    _, problem = build_problem_of(
        build.snapshot(nodes=nodes, jobs=[*jobs, build.job("large", gpus=8, priority=5)])
    )

    kinds = [group.nodes for group in by_kind(problem).groups]

    assert [group.nodes for group in problem.groups] == [(0, 1, 2, 3, 4, 5)]
    assert sorted(kinds) == [(0, 1, 2), (3, 4, 5)]


def test_a_node_with_free_gpus_beside_a_job_that_may_leave_is_a_kind_by_itself():
    _, problem = partly_held(build.job("large", gpus=8, priority=5))

    assert [group.nodes for group in by_kind(problem).groups] == [(0,), (1,)]


def test_sums_over_nodes_promise_what_no_node_has_and_kinds_do_not():
    """
    The large job needs a whole node, so a small one finds four GPUs that are free today only on the other.

    The sums count the GPU of each job that is stopped, and seven that are free, four of which are left on
    each node: room for two small jobs.
    """
    snapshot, problem = partly_held(
        build.job("large", gpus=8, priority=5), *(build.job(f"small-{n}", gpus=4) for n in (0, 1))
    )
    found, _ = told_by(problem, snapshot, greedy(problem))
    target = target_of(found.plan, snapshot.running_placements)
    verification = judged(snapshot, POLICY, target)

    assert verification.violations == ()
    assert optimum(problem) > optimum(by_kind(problem)) == verification.objective


def told_by(problem, snapshot, ledger):
    """What the finer model says of a plan, and what it reported on the way."""
    running, told = snapshot.running_placements, []
    target = target_of(ledger, running)
    return solve_finer_model(problem, by_kind(problem), running, target, budget(), told.append), told


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.tiny, instances.cpu_limited(instances.tiny)])
def test_no_bound_is_below_the_best_plan_nor_above_that_of_the_block_model(make):
    tried = 0
    for seed in range(examples(24)):
        instance = make(seed)
        problem = build_problem(instance.snapshot, instance.policy)
        try:
            best = best_of_all(instance.snapshot, instance.policy, fates=offered(problem)).objective
        except TooLargeError:
            continue
        nothing = judged(instance.snapshot, instance.policy, nothing_changed(instance.snapshot)).objective
        found, told = told_by(problem, instance.snapshot, greedy(problem))

        assert best - nothing <= found.bound, seed
        assert all(best - nothing <= each.bound for each in told if each.bound is not None), seed
        assert optimum(by_kind(problem)) <= optimum(problem), seed
        tried += 1
    assert tried >= examples(12)


@pytest.mark.slow
@pytest.mark.parametrize("make", [instances.everything, instances.everything_mixed])
def test_legal_targets_break_no_row_and_plans_break_no_rule(make):
    for seed in range(examples(40)):
        instance = make(seed)
        snapshot, policy = instance.snapshot, instance.policy
        problem = build_problem(snapshot, policy)
        x = Columns(by_kind(problem))
        formulation = formulate(x.problem, x)
        for number in range(2):
            target = legal_target(snapshot, policy, problem, random.Random(1000 * number + seed))
            values = encode(x, target)
            assert formulation.violated_rows(values) == (), seed
            assert formulation.points(values) >= judged(snapshot, policy, target).objective, seed
        found, _ = told_by(problem, snapshot, greedy(problem))
        if found.plan is not None:
            verification = judged(snapshot, policy, target_of(found.plan, snapshot.running_placements))
            assert verification.violations == (), seed
            nothing = judged(snapshot, policy, nothing_changed(snapshot)).objective
            assert verification.objective - nothing == found.plan.objective <= found.bound, seed


def test_refining_ends_with_the_proof_of_the_finer_model():
    snapshot, problem = partly_held(
        build.job("large", gpus=8, priority=5), *(build.job(f"small-{n}", gpus=4) for n in (0, 1))
    )
    running, told = snapshot.running_placements, []

    improve_by_lns(problem, running, nothing_changed(snapshot), budget(600, ticks=20), told.append)

    plan = [each for each in told if isinstance(each, DesiredState)][-1]
    headroom = [each.points for each in told if isinstance(each, Headroom)][-1]
    gain = (
        judged(snapshot, POLICY, plan).objective
        - judged(snapshot, POLICY, nothing_changed(snapshot)).objective
    )
    assert gain == headroom


def test_a_model_too_large_for_the_work_left_is_not_built():
    _, problem = partly_held(build.job("large", gpus=8, priority=5))
    size = finer_size(by_kind(problem))
    per_tick = budget().params.finer_model.size_per_tick

    assert size == 2
    assert finer_problem(problem, budget(ticks=1)) is not None
    assert finer_problem(problem, budget(ticks=0.5 * size / per_tick)) is None
