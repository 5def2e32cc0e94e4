"""A waiting job: the numbers behind its reason, the jobs before it, and the holders of what it needs."""

from __future__ import annotations

from datetime import timedelta

from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.explain.feasibility import PlanFeasibility
from gpuplan.planner.explain.hypothesis import Hypothesis
from gpuplan.planner.explain.job import explain_position
from tests.support.builders.build import NOW, job, node, queue, replica, snapshot
from tests.support.harness.explain_helpers import CALM, greedy_plan


def stands(world, name="a", policy=CALM):
    plan = greedy_plan(world, policy)
    return explain_position(
        Hypothesis.unchanged(plan, plan.snapshot.job_by_name[name]), PlanFeasibility(plan)
    )


def old(name, *gpus, **more):
    return job(name, gpus=len(gpus), at=[replica("n0", gpus=gpus)], **more)


ONE_NODE = {"nodes": [node("n0")]}


def test_the_room_on_the_nodes_it_may_use():
    found = stands(snapshot(**ONE_NODE, jobs=[old("r", 0, 1, 2, 3, 4), job("a", gpus=2, replicas=2)]))

    assert (found.replicas_fitting, found.replicas_needed, found.matching_nodes) == (1, 2, 1)
    assert (found.largest_free.node, found.largest_free.gpus) == ("n0", 3)


def test_every_limit_up_to_the_root_and_the_one_that_binds():
    queues = [queue("all", nominal=2), queue("q", parent="all", nominal=3, borrowing=9)]
    world = snapshot(**ONE_NODE, queues=queues, jobs=[old("r", 0, 1, 2, 3), job("a", gpus=2)])

    quotas = stands(world).quotas

    assert [(each.queue, each.used_milli, each.limit_milli, each.binds) for each in quotas] == [
        ("q", 4000, 12000, False),
        ("all", 4000, 5000, True),
    ]


def test_limits_of_cpu_cores_and_memory_bind_jobs_with_gpus_and_their_holders_are_told():
    limited = queue("q", nominal=8, cpus=6, memory="4Gi")
    work = job("w", cpus=4, memory_gib=1, at=[replica(cpus=4, memory_gib=1)])
    world = snapshot(**ONE_NODE, queues=[limited], jobs=[work, job("a", gpus=1, cpus=3, memory_gib=3)])

    found = stands(world)

    assert [(each.resource, each.used_milli, each.limit_milli, each.binds) for each in found.quotas] == [
        ("gpus", 0, 8000, False),
        ("cpus", 4000, 6000, True),
        ("memory", 1024_000, 4096_000, False),
    ]
    assert [each.job for each in found.holders] == ["w"]


def test_jobs_that_wait_for_the_same_go_before_by_priority_and_then_by_what_they_have_left():
    """Not by points: larger jobs have more of them."""
    of = {
        "a": (1, 8, 9),
        "b": (1, 8, 1),
        "c": (3, 8, 80),
        "d": (1, 4, 0.5),
        "e": (1, 16, 10),
        "f": (0, 8, 0.1),
    }
    waiting = [
        job(name, gpus=gpus, priority=priority, expected_duration=round(hours * 3600))
        for name, (priority, gpus, hours) in of.items()
    ]
    elsewhere = job("t", gpus=8, priority=9, gpu_models={"T4": 1})
    world = snapshot(nodes=[node(gpus=16)], jobs=[old("r", 0, 1, *range(2, 14)), *waiting, elsewhere])

    found = stands(world, policy=Policy(disruption=Disruption(preempt=False)))

    assert [each.job for each in found.ahead] == ["c", "d", "b"]
    assert found.ahead_in_all == 3
    assert (found.urgency.gpu_milli, found.urgency.left_seconds) == (8000, 9 * 3600)


def test_a_job_that_waits_for_the_same_quota_is_ahead_wherever_it_may_run():
    waiting = [job("a", gpus=1), job("t", gpus=1, priority=9, gpu_models={"T4": 1})]
    nodes = [node("n0"), node("t0", model="T4")]
    world = snapshot(nodes=nodes, queues=[queue("q", nominal=1)], jobs=[old("r", 0), *waiting])

    assert [each.job for each in stands(world).ahead] == ["t"]


def test_holders_come_by_their_ends_and_the_rest_is_counted():
    running = [old(f"r{index}", index, expected_duration=(9 - index) * 3600) for index in range(8)]

    found = stands(snapshot(**ONE_NODE, jobs=[*running, job("a", gpus=1)]))

    assert [each.job for each in found.holders] == ["r7", "r6", "r5", "r4", "r3"]
    assert found.holders[0].ends_at == NOW + timedelta(hours=1)
    assert found.holders_in_all == 8


def test_only_jobs_that_the_planner_may_stop_are_said_to_be_stoppable():
    running = [
        old("high", *range(4), priority=9),
        old("low", *range(4, 7)),
        old("fixed", 7, preemptible=False),
    ]
    world = snapshot(**ONE_NODE, jobs=[*running, job("a", gpus=8, priority=5)])

    allowed = {each.job: each.may_be_stopped for each in stands(world, policy=Policy()).holders}

    assert allowed == {"high": False, "low": True, "fixed": False}
    assert not any(each.may_be_stopped for each in stands(world).holders)


def test_a_job_stopped_so_often_before_may_not_be_stopped():
    running = [old("first", *range(4), preemptions=1), old("second", *range(4, 8), preemptions=2)]
    world = snapshot(**ONE_NODE, jobs=[*running, job("a", gpus=8, priority=5)])
    policy = Policy(disruption=Disruption(max_preemptions=2))

    allowed = {each.job: each.may_be_stopped for each in stands(world, policy=policy).holders}

    assert allowed == {"first": True, "second": False}


def test_no_holder_of_what_a_held_job_lacks():
    found = stands(snapshot(**ONE_NODE, jobs=[old("r", 0), job("a", gpus=1, held=True)]))

    assert (found.holders, found.ahead) == ((), ())
