"""Which jobs greedy preempts, for which, and which come back."""

from __future__ import annotations

import pytest

from gpuplan.models.affinity import AntiAffinity, LocalityPreference
from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Disruption, Policy, Prices
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.preemption import PreemptionSearch
from gpuplan.solvers.heuristics.vacate import stop_incumbent
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.harness.greedy_plans import plan
from tests.support.strategies import reclaim_worlds

ONE = build.cluster(1)


def runner(name, *gpus, node="n0", **more):
    """A running job of one replica on GPUs of a node."""
    return build.job(name, gpus=len(gpus), at=[build.replica(node, gpus=gpus)], **more)


def test_cheapest_victims_go_and_only_as_many_as_must():
    jobs = [
        *(runner(f"r{index}", index, priority=index // 4) for index in range(8)),
        build.job("a", gpus=2, priority=5),
    ]

    planned = plan(build.snapshot(nodes=ONE, jobs=jobs))

    gone = {f"r{index}" for index in range(8)} - planned.places.keys()
    assert len(gone) == 2
    assert gone < {"r0", "r1", "r2", "r3"}


def test_no_job_goes_for_a_job_of_the_same_priority():
    jobs = [runner("r", *range(8), priority=3), build.job("a", gpus=8, priority=3, weight=9)]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"r"}


def test_no_job_goes_for_a_job_that_brings_less_than_is_lost():
    jobs = [runner("r", *range(8)), build.job("a", gpus=1, priority=5)]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"r"}


def test_no_job_goes_for_a_job_that_fits_anyway():
    jobs = [runner("r", *range(8)), build.job("a", gpus=8, priority=9)]

    assert set(plan(build.snapshot(nodes=build.cluster(2), jobs=jobs)).places) == {"r", "a"}


def test_no_job_goes_that_may_not():
    jobs = [
        runner("r", *range(4), preemptible=False),
        runner("s", *range(4, 8), priority=1),
        build.job("a", gpus=8, priority=9),
    ]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"r", "s"}


def test_the_node_with_the_cheapest_victims_is_freed():
    jobs = [
        runner("r0", *range(8), node="n0", checkpoint_duration=3600),
        runner("r1", *range(8), node="n1"),
        build.job("a", gpus=8, priority=5),
    ]

    planned = plan(build.snapshot(nodes=build.cluster(2), jobs=jobs))

    assert planned.nodes("a") == ["n1"]
    assert set(planned.places) == {"a", "r0"}


def test_victim_found_first_stays_if_the_job_fits_without_it():
    """The single is cheapest per GPU, but does not help; the job of four does alone."""
    jobs = [
        runner("small", 0),
        runner("large", *range(1, 5), checkpoint_duration=60),
        runner("rest", *range(5, 8), priority=9),
        build.job("a", gpus=4, priority=9),
    ]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"small", "rest", "a"}


def test_gang_gets_several_nodes_freed():
    jobs = [
        *(runner(f"r{index}", *range(8), node=f"n{index}") for index in range(3)),
        build.job("a", gpus=8, replicas=2, priority=5),
    ]

    planned = plan(build.snapshot(nodes=build.cluster(3), jobs=jobs))

    assert len(planned.places) == 2
    assert len(set(planned.nodes("a"))) == 2


def test_gang_starts_in_the_place_of_one_victim_that_holds_as_much():
    """Also where victims are chosen one by one, without the market of bulk preemption."""
    jobs = [runner("r", *range(8)), build.job("a", gpus=4, replicas=2, priority=5)]
    ledger = Ledger(build_problem(build.snapshot(nodes=ONE, jobs=jobs), Policy()))

    assert PreemptionSearch(ledger).make_room(0)
    assert ledger.jobs_left(0) == 0


def test_a_gang_that_is_owed_a_guarantee_starts_before_a_job_of_lower_priority():
    """A plan with the lower job alone breaks the rule of priorities, and no other plan was left."""
    snapshot, policy = reclaim_worlds.world_of_turns(115)

    assert set(plan(snapshot, policy).places) == {"r0", "w2"}


def test_gang_gets_one_rack_freed():
    nodes = [
        build.node(f"{rack}-{number}", region="eu", zone="z", rack=rack)
        for rack in ("r", "s")
        for number in (0, 1)
    ]
    running = [runner(f"j-{node.name}", *range(8), node=node.name) for node in nodes]
    dear = [runner("j-r-0", *range(8), node="r-0", checkpoint_duration=3600), *running[1:]]
    gang = build.job(gpus=8, replicas=2, priority=5, locality=LocalityPreference(required=Level.RACK))

    planned = plan(build.snapshot(nodes=nodes, jobs=[*dear, gang]))

    assert planned.nodes("a") == ["s-0", "s-1"]


def test_elastic_victim_shrinks_rather_than_stops():
    victim = build.job("r", gpus=1, replicas=(2, 8), at=[build.replica(gpus=[index]) for index in range(8)])

    planned = plan(build.snapshot(nodes=ONE, jobs=[victim, build.job(gpus=3, priority=5)]))

    assert len(planned.places["r"].replicas) == 5
    assert "preemption" not in planned.terms
    # 66 minutes of all its eight GPUs, and the resize
    assert planned.terms["resize"] == -880 - 10


def test_elastic_victim_that_would_become_too_small_stops():
    victim = build.job("r", gpus=1, replicas=(7, 8), at=[build.replica(gpus=[index]) for index in range(8)])

    planned = plan(build.snapshot(nodes=ONE, jobs=[victim, build.job(gpus=8, priority=5)]))

    assert set(planned.places) == {"a"}


def test_job_of_low_rank_does_not_follow_the_victim():
    """Four GPUs are left of the eight the victim held; the small job may not follow it there."""
    jobs = [
        runner("r", *range(8), priority=2),
        build.job("a", gpus=4, priority=20),
        build.job("low", gpus=2, priority=2),
        build.job("high", gpus=2, priority=3),
    ]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"a", "high"}


@pytest.mark.parametrize("guarantee", [8, None])
def test_borrower_makes_room_for_a_job_of_a_queue_below_its_quota(guarantee):
    queues = [build.queue("owed", nominal=8, guarantee=guarantee), build.queue("rich")]
    jobs = [
        runner("r", *range(8), queue="rich", priority=9),
        build.job("a", gpus=8, queue="owed", priority=0),
    ]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs, queues=queues)).places) == {"a"}


def test_quota_is_freed_by_a_victim_in_whatever_place():
    jobs = [runner("r", *range(4)), build.job("a", gpus=4, priority=5)]
    snapshot = build.snapshot(nodes=build.cluster(2), jobs=jobs, queues=[build.queue("q", nominal=4)])

    assert set(plan(snapshot).places) == {"a"}


def test_victim_that_frees_no_quota_stays():
    queues = [build.queue("q", nominal=4), build.queue("other")]
    jobs = [
        runner("r", *range(4)),
        runner("s", *range(4, 8), queue="other"),
        build.job("a", gpus=4, priority=5),
    ]

    planned = plan(build.snapshot(nodes=build.cluster(2), jobs=jobs, queues=queues))

    assert set(planned.places) == {"s", "a"}


def test_job_that_keeps_a_better_one_away_goes():
    jobs = [
        runner("loud", 0, labels={"app": "loud"}),
        build.job("a", gpus=4, priority=5, anti_affinity=(AntiAffinity(labels={"app": "loud"}),)),
    ]

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs)).places) == {"a"}


def test_running_elastic_job_grows_into_what_is_free():
    grower = build.job("r", gpus=1, replicas=(1, 4), at=[build.replica(gpus=[0])])

    planned = plan(build.snapshot(nodes=[build.node(gpus=3)], jobs=[grower]))

    assert len(planned.places["r"].replicas) == 3
    assert planned.terms == {"completion": 200, "resize": -110 - 10}


def test_job_does_not_grow_for_less_than_it_loses():
    places = [build.replica(gpus=[0]), build.replica(gpus=[1])]
    grower = build.job("r", gpus=1, replicas=(1, 4), at=places)

    planned = plan(build.snapshot(nodes=[build.node(gpus=4)], jobs=[grower]))

    # Two replicas more would bring 200, and 66 minutes of the two that it has are worth 220.
    assert len(planned.places["r"].replicas) == 2


def test_job_does_not_grow_for_less_than_it_costs():
    grower = build.job("r", gpus=1, replicas=(1, 4), at=[build.replica(gpus=[0])])
    snapshot = build.snapshot(nodes=[build.node(gpus=2)], jobs=[grower])

    assert len(plan(snapshot, Policy(prices=Prices(resize=101))).places["r"].replicas) == 1


def test_waiting_job_goes_before_growth():
    grower = build.job("r", gpus=1, replicas=(1, 4), at=[build.replica(gpus=[0])], priority=5)

    snapshot = build.snapshot(nodes=[build.node(gpus=2)], jobs=[grower, build.job(gpus=1)])

    planned = plan(snapshot, Policy(priority=build.BY_WEIGHT))

    assert set(planned.places) == {"r", "a"}


def test_draining_node_is_left_for_another_place():
    nodes = [build.node("n0", drain=True), build.node("n1")]

    planned = plan(build.snapshot(nodes=nodes, jobs=[runner("r", 0, 1)]))

    assert planned.nodes("r") == ["n1"]
    assert planned.terms["drain"] == 10_000


def test_job_on_a_draining_node_stops_only_if_that_pays():
    nodes = [build.node("n0", drain=True)]
    snapshot = build.snapshot(nodes=nodes, jobs=[runner("r", 0, 1)])

    assert plan(snapshot).places == {}
    assert set(plan(snapshot, Policy(prices=Prices(drain=300))).places) == {"r"}


def test_no_job_is_disturbed_against_the_policy():
    jobs = [runner("r", *range(8)), build.job("a", gpus=8, priority=9)]
    calm = Policy(disruption=Disruption(preempt=False, resize=False))

    assert set(plan(build.snapshot(nodes=ONE, jobs=jobs), calm).places) == {"r"}


def test_no_job_goes_once_the_deadline_has_passed_but_what_fits_starts():
    jobs = [
        runner("r", *range(8)),
        build.job("large", gpus=8, priority=9),
        build.job("small", gpus=4, priority=5),
    ]
    nodes = [build.node("n0"), build.node("n1", gpus=4)]
    problem = build_problem(build.snapshot(nodes=nodes, jobs=jobs), Policy())
    names = {job for each in problem.classes for job in each.jobs}

    assert {"large", "small"} <= names
    assert [disruption for disruption in (greedy(problem).disruptions[0],) if disruption] != []
    late = greedy(problem, deadline=0.0)
    started = {problem.classes[placed.job_class].jobs[0] for placed in late.placed.values()}
    assert (late.disruptions[0], started) == (None, {"small"})


def test_quota_is_not_freed_for_a_job_that_does_not_outrank_the_running_one():
    """A job that does outrank it waits as well, but no node takes that one."""
    queues = [build.queue("q", nominal=1)]
    huge = build.job("huge", gpus=1, memory_gib=10_000, priority=5, weight=100)
    jobs = [runner("r", 0, priority=4), build.job("a", gpus=1, priority=1, weight=100), huge]
    world = build.snapshot(jobs=jobs, queues=queues)

    assert set(plan(world).places) == {"r"}
    # Once it is stopped, what it had is not for the other, though a GPU and the quota are free.
    problem = build_problem(world, Policy())
    ledger = Ledger(problem)
    stop_incumbent(ledger, 0)
    (poor,) = (index for index, each in enumerate(problem.classes) if each.jobs == ("a",))
    assert placement.place(ledger, poor, problem.classes[poor].options[0], jobs=1) == 0
