"""Gangs that need one rack are planned ahead of others, and preempt where waiting costs more."""

from __future__ import annotations

import pytest

from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy, greedy_orders, place_gangs_first, single_domain_gangs
from gpuplan.solvers.heuristics.list_scheduling import schedule_in_order
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build

RACK = {"required": "rack"}
SLOTS = 6


def policy(*, preempt=True):
    disruption = Disruption(preempt=preempt, resize=False)
    return Policy(horizon=HorizonPolicy(slots=SLOTS), disruption=disruption)


def two_racks(*jobs, hours):
    """Two racks of two nodes of four GPUs; on one node of each a job runs for so many hours more."""
    nodes = [build.node(f"n{index}", gpus=4, rack=f"rack{index // 2}") for index in range(4)]
    running = [
        build.job(
            f"r{index}",
            gpus=1,
            at=[build.replica(f"n{index}", gpus=(0,))],
            expected_duration=f"{hours + 1}h",
        )
        for index in (0, 2)
    ]
    return build.snapshot(nodes=nodes, jobs=[*running, *jobs])


def gang(name="g", *, hours=6, **more):
    about = {"locality": RACK, "expected_duration": f"{hours}h", "priority": 5}
    return build.job(name, gpus=4, replicas=2, **about, **more)


def small(number):
    """Jobs that take what is free of a rack for long, and are worth more for each GPU."""
    return [
        build.job(f"s{index}", gpus=1, expected_duration="6h", priority=9, weight=2)
        for index in range(number)
    ]


def planned(snapshot, rules):
    """The ledger after gangs were planned, and all the others."""
    ledger = Ledger(build_problem(snapshot, rules))
    place_gangs_first(ledger, deadline=None)
    schedule_in_order(ledger)
    verification = verify_target(snapshot, rules, target_of(ledger, snapshot.running_placements))
    assert not verification.violations
    return ledger


def stopped(snapshot, ledger):
    kept = {each.job for each in target_of(ledger, snapshot.running_placements).placements}
    return {each.job for each in snapshot.running_placements} - kept


def started(ledger):
    """Slot by job."""
    classes = ledger.problem.classes
    found = {classes[each.job_class].jobs[0]: 0 for each in ledger.placed.values()}
    return found | {classes[each.job_class].jobs[0]: each.slot for each in ledger.reserved.values()}


def test_gang_preempts_what_keeps_its_rack_from_coming_free_for_long():
    snapshot = two_racks(gang(), hours=5)

    ledger = planned(snapshot, policy())

    (victim,) = stopped(snapshot, ledger)
    assert started(ledger) == {"g": 0, victim: 1}  # and resumes


def test_gang_waits_where_that_costs_less_than_its_victim_is_worth():
    snapshot = two_racks(gang(hours=1), hours=1)

    ledger = planned(snapshot, policy())

    assert started(ledger) == {"g": 1}
    assert not stopped(snapshot, ledger)


def test_gang_waits_where_no_job_may_be_preempted():
    snapshot = two_racks(gang(), hours=3)

    ledger = planned(snapshot, policy(preempt=False))

    assert started(ledger) == {"g": 3}


def test_jobs_worth_more_for_each_gpu_leave_the_rack_to_the_gang():
    snapshot = two_racks(gang(), *small(6), hours=2)
    problem = build_problem(snapshot, policy())
    alone = Ledger(problem)
    schedule_in_order(alone)

    ledger = planned(snapshot, policy())

    assert started(ledger)["g"] == 0 < started(alone).get("g", SLOTS)


@pytest.mark.parametrize(("preempt", "ahead"), [(True, True), (False, False)])
def test_greedy_tries_it_where_a_gang_may_preempt(preempt, ahead):
    problem = build_problem(two_racks(gang(), hours=5), policy(preempt=preempt))

    assert any(way.gangs_first for way in greedy_orders(problem)) is ahead
    assert greedy(problem).objective >= 0


def test_only_gangs_that_need_one_domain_and_start_alone_go_ahead():
    pair = [gang(name, co_start="pair") for name in ("a", "b")]
    loose = build.job("c", gpus=4, replicas=2)
    problem = build_problem(two_racks(*pair, loose, gang(), hours=5), policy())

    assert [problem.classes[index].jobs[0] for index in single_domain_gangs(problem)] == ["g"]
