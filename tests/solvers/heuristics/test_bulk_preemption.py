"""Preemption in bulk: what a look at one waiting job after the other misses."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.heuristics.bulk_preemption import MarketPrices, preempt_in_bulk, stop_below_market_price
from gpuplan.solvers.heuristics.greedy import _plan, greedy, greedy_orders
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.preemption import preempt_for_waiting
from gpuplan.solvers.heuristics.vacate import restore_preempted
from gpuplan.solvers.params.placement import GreedyParams, PlacementParams
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.harness.greedy_plans import realized
from tests.support.strategies import instances


def traded(snapshot, policy=None):
    policy = policy or build.by_value(priority=build.BY_WEIGHT)
    ledger = Ledger(build_problem(snapshot, policy))
    preempt_in_bulk(ledger)
    return realized(snapshot, policy, ledger)


def one_by_one(snapshot, policy=None):
    """What is found without a market."""
    policy = policy or build.by_value(priority=build.BY_WEIGHT)
    ledger = Ledger(build_problem(snapshot, policy))
    fill_free_capacity(ledger)
    if preempt_for_waiting(ledger, ledger.problem.placement_order):
        restore_preempted(ledger)
        fill_free_capacity(ledger)
    return realized(snapshot, policy, ledger)


def running(name, *nodes, **more):
    """A job that runs on all GPUs of nodes."""
    at = [build.replica(node, gpus=range(8)) for node in nodes]
    return build.job(name, gpus=8, replicas=len(nodes), at=at, **more)


def running_some(name, *gpus, node="n0", **more):
    """A job that runs on GPUs of a node."""
    return build.job(name, gpus=len(gpus), at=[build.replica(node, gpus=gpus)], **more)


def test_gang_gives_way_to_jobs_that_only_together_are_worth_more():
    jobs = [running("gang", "n0", "n1"), *(build.job(name, gpus=8, priority=2) for name in "ab")]
    snapshot = build.snapshot(jobs=jobs)

    assert set(one_by_one(snapshot).places) == {"gang"}
    assert set(traded(snapshot).places) == {"a", "b"}


def test_gang_stays_if_the_waiting_jobs_are_worth_less():
    jobs = [running("gang", "n0", "n1"), build.job("a", gpus=8, priority=2), build.job("b", gpus=8)]

    assert set(traded(build.snapshot(jobs=jobs)).places) == {"gang"}


def test_jobs_of_a_queue_follow_each_other_though_it_holds_no_more_than_it_is_guaranteed():
    queues = [build.queue("q", nominal=8, guarantee=8), build.queue("other")]
    jobs = [
        *(running_some(f"r{index}", index) for index in range(8)),
        build.job("a", gpus=8, priority=3),
    ]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues)

    assert set(traded(snapshot).places) == {"a"}


def test_gang_bound_to_a_domain_gets_it_before_denser_jobs_are_all_over():
    """Each of three denser jobs would take a node of its own, and no rack of two be left."""
    nodes = [build.node(f"n{index}", rack=f"r{index // 2}") for index in range(5)]
    rack = LocalityPreference(required=Level.RACK)
    jobs = [
        running_some("r", *range(4), node="n4", priority=9),
        *(build.job(f"a{index}", gpus=6, priority=4) for index in range(3)),
        build.job("gang", gpus=8, replicas=2, priority=3, locality=rack),
    ]

    assert "gang" in traded(build.snapshot(nodes=nodes, jobs=jobs)).places


def test_as_many_give_way_as_a_guarantee_can_spare_and_those_worth_least_in_front():
    queues = [build.queue("q", nominal=8, guarantee=8), build.queue("other")]
    jobs = [
        *(running_some(f"r{index}", index, restart_duration=60 * (8 - index)) for index in range(8)),
        build.job("a", gpus=8, priority=3, queue="other"),
    ]
    problem = build_problem(build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues), Policy())
    ledger = Ledger(problem)
    market = MarketPrices(ledger)

    stop_below_market_price(ledger, market, [2999.0])

    gone = {problem.incumbents[index].job for index in ledger.disruptions.having("stop")}
    assert gone == {"r6", "r7"}


def test_jobs_with_room_come_back():
    jobs = [running("r0", "n0"), running("r1", "n1"), build.job("a", gpus=8, priority=5)]

    assert len(traded(build.snapshot(jobs=jobs)).places) == 2


def test_what_a_queue_is_owed_is_given_though_it_is_worth_less_than_the_price():
    queues = [build.queue("q"), build.queue("poor", nominal=16, guarantee=4)]
    jobs = [
        *(build.job(f"a{index}", gpus=8, priority=5) for index in range(4)),
        *(running_some(f"r{index}", index, priority=0) for index in range(8)),
        build.job("owed", gpus=4, queue="poor"),
    ]

    assert "owed" in traded(build.snapshot(jobs=jobs, queues=queues)).places


@pytest.mark.slow
def test_trades_break_no_rule_and_are_worth_what_the_ledger_says():
    done = Counter()
    for seed in range(200):
        for kind in (instances.everything, instances.everything_mixed):
            instance = kind(seed)
            ledger = Ledger(build_problem(instance.snapshot, instance.policy))
            if ledger.problem.slots == 1:
                preempt_in_bulk(ledger)
                realized(instance.snapshot, instance.policy, ledger)
                done["placed"] += len(ledger.placed)
                done["stopped"] += len(ledger.disruptions.having("stop"))
    assert min(done["placed"], done["stopped"]) >= 50


def test_no_job_is_stopped_without_a_gain_for_another_however_little_it_is_worth():
    policy = Policy(prices=Prices(disruption=0))
    too_large = [build.job(f"b{number}", gpus=8, cpus=500, priority=3) for number in range(3)]
    jobs = [running("r0", "n0", weight=0), running("r1", "n1", weight=0), build.job("a", gpus=8, priority=3)]
    snapshot = build.snapshot(nodes=build.cluster(3), jobs=[*jobs, *too_large])

    assert set(traded(snapshot, policy).places) == {"r0", "r1", "a"}


def test_a_job_stopped_for_nothing_comes_back_though_nothing_is_won():
    jobs = [running("r", "n0", weight=0), build.job("a", gpus=8, cpus=500, priority=3)]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[*jobs, build.job("b", gpus=8, priority=3)])
    ledger = Ledger(build_problem(snapshot, Policy(prices=Prices(disruption=0))))
    assert vacate.stop_incumbent(ledger, 0)

    restore_preempted(ledger)

    assert ledger.disruptions[0] is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_thorough_plan_is_no_worse_than_trades_one_by_one(seed):
    params = PlacementParams(greedy=GreedyParams(few_incumbents=0))
    instance = instances.everything_mixed(seed)
    problem = build_problem(instance.snapshot, instance.policy)

    orders = greedy_orders(problem, params, thorough=True)
    alone = max(_plan(problem, order, None, params).ledger.objective for order in orders)
    assert greedy(problem, thorough=True, params=params).objective == alone
    assert greedy(problem, params=params).objective <= alone
