"""What the pipeline finds over time, against every schedule that there is."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from gpuplan.models.policy.policy import BudgetPolicy, Policy, SolverName
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.apply.promises import carry_over_promises
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from tests.support.oracles import exhaustive_schedules
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.schedule_instances import FEATURES, timely

SEEDS = range(300 if EVERY_SEED else 40)
CALM = tuple(feature for feature in FEATURES if feature != "eviction")


@cache
def best(seed):
    """(instance, objective of the best schedule) of small instances; None for one with too many schedules."""
    given = timely(seed, features=CALM)
    return given, best_of(given.snapshot, given.policy)


def best_of(snapshot, policy):
    """The objective of the best legal schedule; None if there are too many, or a running job may be moved."""
    incumbents = build_problem(snapshot, policy).incumbents
    if any(each.move is not None for each in incumbents):
        return None
    offered = {each.job for each in incumbents if each.stop_points is not None}
    try:
        found = exhaustive_schedules.best_schedule(snapshot, policy, stopping=offered)
    except exhaustive_schedules.TooLargeError:
        return None
    return None if found is None else found[1]


def planned(snapshot, policy, *solvers):
    """The plan of some solvers, given all the time they need."""
    rules = policy.model_copy(update={"solvers": solvers, "budget": BudgetPolicy(time_limit="60s")})
    return plan_epoch(snapshot, rules, seed=0, created_at=snapshot.taken_at)


def with_promises(seed):
    """An instance in which a job holds a promise of an earlier plan, after which more work has come."""
    given = timely(seed, features=CALM)
    jobs = given.snapshot.jobs
    waiting = [job for job in jobs if job.running is None]
    if any(job.co_start for job in waiting):
        return None
    # Those that wait depend on smaller names only, so the first ones depend on none that is left out.
    early = tuple(job for job in jobs if job.running or job in waiting[:2])
    plan = planned(given.snapshot.model_copy(update={"jobs": early}), given.policy)
    snapshot = carry_over_promises(given.snapshot, plan)
    return (snapshot, given.policy) if any(job.promise for job in snapshot.jobs) else None


@pytest.mark.slow
def test_the_best_of_all_schedules_is_found_and_no_bound_is_below_it():
    seen = Counter()
    for seed in SEEDS:
        given, most = best(seed)
        if most is None:
            continue
        plan = planned(given.snapshot, given.policy, SolverName.MILP)
        assert plan.solution.objective <= most, seed
        assert plan.solution.bound >= most, seed
        seen["all"] += 1
        seen["best"] += plan.solution.objective == most
        seen["proven"] += plan.solution.status == "OPTIMAL"
        seen["better than greedy"] += most > plan.solution.greedy_objective
        seen["later"] += bool(plan.planned)
    assert seen["all"] >= len(SEEDS) * 3 // 4, seen
    assert seen["best"] >= seen["all"] * 95 // 100, seen
    assert seen["proven"] >= seen["all"] * 9 // 10, seen
    assert seen["better than greedy"], seen
    assert seen["later"] >= 10, seen


@pytest.mark.slow
def test_both_solvers_give_the_same_answer():
    seen = Counter()
    for seed in SEEDS[:: 1 if EVERY_SEED else 5]:
        given, most = best(seed)
        if most is None:
            continue
        plan = planned(given.snapshot, given.policy, SolverName.CPSAT)
        milp = planned(given.snapshot, given.policy, SolverName.MILP)
        assert plan.solution.objective <= most <= plan.solution.bound, seed
        assert plan.solution.bound == milp.solution.bound, seed
        seen["all"] += 1
        seen["same"] += plan.solution.objective == milp.solution.objective
    assert seen["all"] >= 6, seen
    assert seen["same"] >= seen["all"] * 95 // 100, seen


@pytest.mark.slow
def test_with_promises_to_keep_the_best_of_all_schedules_that_keep_them_is_found():
    seen = Counter()
    for seed in SEEDS:
        asked = with_promises(seed)
        if asked is None or (most := best_of(*asked)) is None:
            continue
        plan = planned(*asked, SolverName.MILP)
        assert plan.solution.objective <= most, seed
        seen["all"] += 1
        seen["best"] += plan.solution.objective == most
        seen["bound"] += plan.solution.bound >= most
        free = tuple(job.model_copy(update={"promise": None}) for job in asked[0].jobs)
        without = best_of(asked[0].model_copy(update={"jobs": free}), asked[1])
        seen["binding"] += without is not None and without > most
        starts = {each.job: each.start for each in plan.planned}
        for job in asked[0].jobs:
            if job.promise and job.name in starts:
                assert starts[job.name] <= job.promise.start, seed
    assert seen["all"] >= 5, seen
    assert seen["best"] >= seen["all"] * 8 // 10, seen


@pytest.mark.parametrize("seed", range(5))
def test_one_slot_written_out_is_the_same_plan_as_no_horizon(seed):
    given = timely(seed)
    policy = Policy(disruption=given.policy.disruption)
    written = Policy(disruption=given.policy.disruption, horizon=HorizonPolicy(slots=1))

    without, one = (planned(given.snapshot, rules) for rules in (policy, written))

    assert without.plan_id == one.plan_id
    assert without.planned == ()
