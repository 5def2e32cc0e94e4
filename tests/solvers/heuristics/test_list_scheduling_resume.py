"""Running jobs that are stopped now and resume in a later slot of the same plan."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from gpuplan.models.dependency import Dependency
from gpuplan.models.policy.policy import BudgetPolicy, SolverName
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.greedy import greedy, greedy_orders
from gpuplan.solvers.heuristics.list_scheduling import reserve_resumptions
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders.build import BY_WEIGHT, node, replica, snapshot
from tests.support.builders.time_builders import HOUR, ahead, at, runs, waits
from tests.support.oracles import exhaustive_schedules
from tests.support.seeds import EVERY_SEED, examples
from tests.support.strategies import time_strategies
from tests.support.strategies.schedule_instances import FEATURES, timely

SEEDS = range(120 if EVERY_SEED else 20)
FEW = tuple(feature for feature in FEATURES if feature not in ("co_start", "dependencies", "maintenance"))
AFTER_U = (Dependency(job="urgent"),)
ONE, TWO = replica("n0", gpus=(0,)), replica("n0", gpus=(1,))


def world(*jobs, gpus=1):
    return snapshot(nodes=[node(gpus=gpus)], jobs=jobs)


def looking(**more):
    """Six slots of an hour, in which stopping costs nothing but the delay and what is lost."""
    rules = {"checkpoint": 0, "restart": 0, "minimum_runtime": 0} | more.pop("disruption", {})
    return ahead(disruption=rules, prices={"disruption": 0, "lateness": 1}, **more)


def urgent(name="urgent", **more):
    """A job of an hour that is worth little more than nothing if it does not start at once."""
    return waits(name, hours=1, priority=1, deadline=at(1), **more)


def planned(world, policy, *solvers):
    rules = policy.model_copy(update={"solvers": solvers, "budget": BudgetPolicy(time_limit="60s")})
    return plan_epoch(world, rules, seed=0, created_at=world.taken_at)


def later(plan):
    return {each.job: each.slot for each in plan.planned}


def classes(problem):
    return {one.jobs[0]: one for one in problem.classes if one.role is ClassRole.RESUME}


# --- the question ------------------------------------------------------------------------------------------


def test_a_stoppable_job_may_resume_in_every_later_slot_with_what_is_left():
    r = runs("r", ONE, hours=2)

    problem = build_problem(world(r, urgent()), looking())

    (option,) = classes(problem)["r"].options
    assert option.groups == ()
    assert [points is not None for points in option.later] == [False, *[True] * 5]
    # Two hours are left, and the one that it ran is lost.
    assert option.ends == (3, 4, 5, 6, 6, 6)
    assert classes(problem)["r"].earliest == 1


@pytest.mark.parametrize("most", [{"slots": 1}, {"disruption": {"preempt": False}}])
def test_no_job_resumes_without_a_later_slot_or_without_a_stop(most):
    assert classes(build_problem(world(runs("r", ONE, hours=2), urgent()), looking(**most))) == {}


def test_a_held_job_or_one_that_outranks_all_does_not_resume():
    held, above = runs("r", ONE, hours=2, held=True), runs("r", ONE, hours=2, priority=2)

    assert classes(build_problem(world(held, urgent()), looking())) == {}
    assert classes(build_problem(world(above, urgent()), looking())) == {}


def test_a_job_tied_to_others_does_not_resume():
    r = runs("r", ONE, hours=2, co_start="g")

    assert classes(build_problem(world(r, urgent()), looking()))
    assert classes(build_problem(world(r, urgent(), waits("w", co_start="g")), looking())) == {}
    assert (
        classes(build_problem(world(r.model_copy(update={"depends_on": AFTER_U}), urgent()), looking())) == {}
    )


def test_a_job_without_its_data_or_too_early_resumes_when_it_may():
    r = runs("r", ONE, hours=2, not_before=at(3))

    assert classes(build_problem(world(r, urgent()), looking()))["r"].earliest == 3


def test_what_resuming_brings_is_no_part_of_what_a_priority_is_served():
    problem = build_problem(world(runs("r", ONE, hours=2), urgent()), looking())

    ledger = greedy(problem)

    assert problem.priorities == (1,)
    assert ledger.reserved
    assert dict(ledger.served) == {1: ledger.objective - _of_incumbents(ledger)}


def _of_incumbents(ledger):
    """What is lost by stopping, less what resuming brings."""
    option = [
        ledger.problem.classes[each.job_class].options[each.option] for each in ledger.reserved.values()
    ]
    again = [one.later[each.slot] for one, each in zip(option, ledger.reserved.values(), strict=True)]
    return ledger.disruptions.points + sum(again)


# --- the answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solvers", [(), (SolverName.MILP,), (SolverName.CPSAT,)])
def test_a_long_job_lets_a_short_one_go_first_and_resumes(solvers):
    plan = planned(world(runs("r", ONE, hours=4), urgent()), looking(), *solvers)

    assert [each.job for each in plan.placements] == ["urgent"]
    assert later(plan) == {"r": 1}
    assert plan.planned[0].promised
    assert plan.solution.objective == plan.solution.bound


def test_no_job_is_stopped_where_the_delay_costs_more():
    dear = looking(disruption={"restart": 3 * HOUR})

    assert later(planned(world(runs("r", ONE, hours=4, priority=0, weight=9), urgent()), dear)) == {
        "urgent": 4
    }


def test_a_resumed_job_takes_other_places_if_that_is_sooner():
    other = runs("s", TWO, hours=1, priority=5)
    long = waits("long", hours=5, priority=4, gpus=1)

    plan = planned(world(runs("r", ONE, hours=4), other, long, gpus=2), looking(), SolverName.MILP)

    assert {each.job for each in plan.placements} == {"long", "s"}
    assert later(plan) == {"r": 1}
    assert plan.planned[0].replicas[0].gpus[0].index == 1


def test_a_stopped_job_is_promised_its_start_before_waiting_ones():
    backfill = {"depth": 1}
    jobs = runs("r", ONE, hours=2), urgent(), waits("w", hours=1)

    plan = planned(world(*jobs), looking(backfill=backfill))

    assert {each.job: each.promised for each in plan.planned} == {"r": True, "w": False}


def test_only_the_way_that_counts_on_resumption_is_added_and_only_where_a_job_may_resume():
    with_, without = (
        build_problem(world(*jobs), looking()) for jobs in ((runs("r", ONE), urgent()), (urgent(),))
    )

    assert [way.resuming for way in greedy_orders(with_)] == [
        *[False] * (len(greedy_orders(with_)) - 1),
        True,
    ]
    assert not any(way.resuming for way in greedy_orders(without))


# --- the ledger --------------------------------------------------------------------------------------------


def test_a_job_that_returns_to_its_places_gives_up_its_later_start():
    ledger = Ledger(build_problem(world(runs("r", ONE, hours=4), urgent()), looking()))
    assert vacate.stop_incumbent(ledger, 0)
    reserve_resumptions(ledger, [0])
    stopped = ledger.objective
    assert len(ledger.reserved) == 1

    assert vacate.restore_incumbent(ledger, 0)

    assert (ledger.reserved, ledger.objective) == ({}, 0)
    assert stopped < 0


def test_no_job_is_booked_that_is_not_stopped():
    ledger = Ledger(build_problem(world(runs("r", ONE, hours=4), urgent()), looking()))

    reserve_resumptions(ledger, [0])

    assert ledger.reserved == {}


@pytest.mark.slow
def test_resumed_jobs_break_no_rule():
    done = Counter()
    for seed in range(examples(150)):
        instance, draw = time_strategies.instance(seed, slots=4), random.Random(seed)
        policy = instance.policy.model_copy(update={"priority": BY_WEIGHT})
        problem = build_problem(instance.snapshot, policy)
        ledger = Ledger(problem)
        for index in draw.sample(range(len(problem.incumbents)), len(problem.incumbents)):
            vacate.stop_incumbent(ledger, index)
        reserve_resumptions(ledger, ledger.disruptions.having(DisruptionKind.STOP))
        for index in range(len(problem.incumbents)):
            if draw.random() < 0.3:
                done["returned"] += vacate.restore_incumbent(ledger, index)
        target = target_of(ledger, instance.snapshot.running_placements)
        found = verify_target(instance.snapshot, policy, target)
        idle = verify_target(
            instance.snapshot, policy, target_of(Ledger(problem), instance.snapshot.running_placements)
        )
        # To do nothing breaks promises at most.
        assert {each.rule for each in found.violations} <= {"promises"}, (seed, found.violations)
        assert found.objective - idle.objective == ledger.objective, seed
        done["resumed"] += len(target.planned)
    assert min(done["resumed"], done["returned"]) > examples(20), done


# --- against every schedule --------------------------------------------------------------------------------


@cache
def contested():
    """(seed, instance, objective of the best schedule, jobs that resume in it) where a job may be stopped."""
    found = []
    for seed in SEEDS:
        given = timely(seed, features=FEW, share=0.6, jobs=2)
        offered = {
            each.job
            for each in build_problem(given.snapshot, given.policy).incumbents
            if each.stop_points is not None
        }
        if not offered:
            continue
        try:
            target, most = exhaustive_schedules.best_schedule(given.snapshot, given.policy, stopping=offered)
        except exhaustive_schedules.TooLargeError:
            continue
        found.append((seed, given, most, {each.job for each in target.planned} & offered))
    return found


@pytest.mark.slow
def test_the_best_of_all_schedules_that_stop_and_resume_is_found_and_no_bound_is_below_it():
    seen = Counter()
    for seed, given, most, resuming in contested():
        plan = planned(given.snapshot, given.policy, SolverName.MILP)
        assert plan.solution.objective <= most <= plan.solution.bound, seed
        assert plan.solution.rejected == (), seed
        seen["all"] += 1
        seen["best"] += plan.solution.objective == most
        seen["greedy"] += plan.solution.greedy_objective == most
        seen["resuming"] += bool(resuming)
    assert seen["all"] >= len(SEEDS) * 5 // 24, seen
    assert seen["best"] >= seen["all"] * 95 // 100, seen
    assert seen["greedy"] >= seen["all"] * 8 // 10, seen
    assert seen["resuming"] >= len(SEEDS) // 30, seen
