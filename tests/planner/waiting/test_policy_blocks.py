"""What the policy forbids, and the budgets that keep others in a job's place, beside the reason."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy, PoolPolicy
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.waiting import messages
from tests.support.builders.build import (
    NOW,
    by_value,
    cluster,
    job,
    node,
    placement,
    pool,
    queue,
    replica,
)
from tests.support.builders.solution_builders import target
from tests.support.harness.waiting_reasons import (
    SERVERS,
    SMALL,
    budgets,
    reason_of,
    remarks,
    running,
    why,
)

NO_PREEMPTION = by_value(disruption=Disruption(preempt=False, max_preemptions=3))


@pytest.mark.parametrize(
    ("priority", "victim", "policy", "remark"),
    [
        (1, {}, NO_PREEMPTION, "preemption is off"),
        (0, {}, NO_PREEMPTION, ""),
        (1, {"preemptible": False}, NO_PREEMPTION, ""),
        (1, {"preemptions": 3}, NO_PREEMPTION, ""),
        (1, {}, Policy(), ""),
    ],
)
def test_preemption_is_called_off_only_where_it_could_help(priority, victim, policy, remark):
    low = running("low", replica("n0", gpus=range(8)), **victim)

    reason = reason_of(job(gpus=1, priority=priority), low, nodes=cluster(1), policy=policy)

    assert (reason.code, reason.numbers) == (ReasonCode.RESOURCES, {"needed": 1, "free": 0})
    assert remarks(reason) == remark


def test_what_the_cluster_cannot_do_is_named_in_place_of_a_setting():
    low = running("low", replica("n0", gpus=range(8)))
    new = [pool("spot", template=node("new", model="H200"))]
    only = {"can": ("release", "start"), "policy": Policy()}

    full = reason_of(job(gpus=1, priority=1), low, nodes=cluster(1), **only)
    grown = reason_of(job(gpus=1, gpu_models=["H200"]), nodes=[node(model="T4")], pools=new, **only)
    uncut = reason_of(job(mig={"3g.40gb": 1}), *SERVERS, **SMALL, **only)

    assert remarks(full) == "the cluster cannot preempt jobs"
    assert remarks(grown) == "the cluster cannot add nodes"
    assert uncut.text.endswith("; the cluster cannot repartition GPUs")


def test_a_victim_elsewhere_is_no_reason_to_speak_of_preemption():
    low = running("low", replica("n0", gpus=range(8)))
    nodes = [node(model="T4"), node("n1", model="L4", gpus=1)]
    here = running("here", replica("n1", gpus=[0]), preemptible=False)

    wanted = job(gpus=1, priority=1, gpu_models=["L4"])
    reason = reason_of(wanted, low, here, nodes=nodes, policy=NO_PREEMPTION)

    assert reason.numbers == {"needed": 1, "free": 0}
    assert not remarks(reason)


@pytest.mark.parametrize(
    ("pools", "scale_up", "remark"),
    [
        ([("spot", 0)], True, "pool spot is at its maximum of 0 nodes"),
        ([("spot", 0), ("cloud", 0)], True, "pools cloud and spot are at their maximum"),
        ([("spot", 1)], False, "pools.scale_up is off"),
        ([], True, ""),
    ],
)
def test_a_pool_that_may_not_grow_is_named(pools, scale_up, remark):
    pools = [pool(name, template=node(f"new-{name}", model="H200"), most=most) for name, most in pools]

    reason = reason_of(
        job(gpus=1, gpu_models=["H200"]),
        nodes=[node(model="T4")],
        pools=pools,
        policy=Policy(pools=PoolPolicy(scale_up=scale_up)),
    )

    assert reason.code is ReasonCode.NO_MATCHING_NODE
    assert remarks(reason) == remark


def test_a_pool_of_unsuitable_nodes_is_not_mentioned():
    small = pool("small", template=node("new", gpus=1), most=0)
    full = running("full", replica("n0", gpus=range(8)))

    reason = reason_of(job(gpus=2), full, nodes=cluster(1), pools=[small], policy=Policy())

    assert reason.numbers == {"needed": 2, "free": 0}
    assert not remarks(reason)


def test_a_pool_that_just_gave_a_node_back_is_named_with_the_time_until_which_it_gets_none():
    gave = {"node_removed_at": NOW - timedelta(minutes=45)}
    early, late = (
        pool(name, template=node(f"new-{name}", model="H200")).model_copy(update=update)
        for name, update in (("early", gave), ("late", {"node_removed_at": NOW}))
    )
    wanted = job(gpus=1, gpu_models=["H200"])

    def remark(*pools, **rules):
        policy = Policy(pools=PoolPolicy(**rules))
        return remarks(reason_of(wanted, nodes=[node(model="T4")], pools=pools, policy=policy))

    gave_back = "pool {} gave a node back and gets none before {}".format
    assert remark(early, late) == gave_back("early", "12:15")
    assert remark(late) == gave_back("late", "13:00")
    assert "gave" not in remark(early, scale_up_delay_after_remove="45m")
    assert remark(early, scale_up=False) == "pools.scale_up is off"


@pytest.mark.parametrize(
    ("priority", "about", "policy", "remark"),
    [
        (1, {}, Policy(), "low was resized and is not disturbed before 12:15"),
        (0, {}, Policy(), ""),
        (1, {"preemptible": False}, Policy(), ""),
        (1, {}, Policy(disruption=Disruption(preempt=False, resize=False)), ""),
        (1, {}, Policy(disruption=Disruption(resize_dwell="45m")), ""),
    ],
)
def test_a_job_that_was_just_resized_is_named_with_the_time_until_which_it_stays(
    priority, about, policy, remark
):
    low = running("low", replica("n0", gpus=range(8)), **about)
    resized = low.running.model_copy(update={"resized_at": NOW - timedelta(minutes=45)})
    low = low.model_copy(update={"running": resized})

    reason = reason_of(job(gpus=1, priority=priority), low, nodes=cluster(1), policy=policy)

    assert reason.numbers == {"needed": 1, "free": 0}
    assert remarks(reason) == remark


def test_gpus_may_be_switched_to_mig_mode_only_if_the_policy_says_so():
    waiting = job(mig={"3g.40gb": 2, "1g.10gb": 1})
    switching = Policy(mig=MigPolicy(switch_mode=True))

    assert why(waiting, nodes=[node()], policy=Policy()) == (
        ReasonCode.NO_MATCHING_NODE,
        {"needed": "1g.10gb and 2 × 3g.40gb", "gpus_in_mig_mode": 0},
    )
    assert why(waiting, nodes=[node()], policy=switching)[0] is ReasonCode.NOT_CHOSEN


def test_room_made_for_others_is_not_for_jobs_of_lower_priority():
    victim = job("v", gpus=8, priority=4, at=[replica(gpus=range(8))])
    winner = job("w", gpus=4, priority=9)
    goal = {
        "nodes": [node()],
        "started": [placement("w", replica(gpus=range(4)))],
        "target_of": lambda world, *placed: target(world, *placed, stopped=["v"]),
    }

    low, high = (reason_of(job(gpus=4, priority=priority), victim, winner, **goal) for priority in (4, 5))

    assert low == messages.blocked_room(messages.RESERVED, {"n0"})
    assert high == messages.not_chosen(proven=False)


def test_a_job_of_a_queue_below_its_quota_may_follow_a_borrower():
    victim = job("v", gpus=8, priority=4, queue="free", at=[replica(gpus=range(8))])
    queues = [queue(nominal=4), queue("free")]

    found = reason_of(
        job(gpus=4),
        victim,
        nodes=[node()],
        queues=queues,
        target_of=lambda world, *placed: target(world, *placed, stopped=["v"]),
    )

    assert found == messages.not_chosen(proven=False)


def kept_by(policy, *, priority=5, **more):
    """Names of the budgets in the reason of a job that could take the places of two others."""
    running = [
        job(f"r{index}", gpus=4, at=[replica(gpus=range(4 * index, 4 * index + 4))], **more)
        for index in range(2)
    ]
    reason = reason_of(job("w", gpus=4, priority=priority), *running, nodes=cluster(1), policy=policy)
    return reason.code, reason.numbers.get("disruption_budgets")


NONE_LEFT = DisruptionBudget(name="b", max_unavailable=0)


def test_a_job_names_the_budget_that_keeps_others_in_its_place():
    assert kept_by(budgets(NONE_LEFT)) == (ReasonCode.RESOURCES, "b")
    both = budgets(NONE_LEFT, DisruptionBudget(name="a", labels={"app": "x"}, min_available=2))
    assert kept_by(both, labels={"app": "y"}) == (ReasonCode.RESOURCES, "b")


def test_a_budget_that_leaves_enough_or_keeps_what_the_job_may_not_replace_is_not_named():
    assert kept_by(budgets(DisruptionBudget(name="b", max_unavailable=1))) == (ReasonCode.RESOURCES, None)
    assert kept_by(budgets(NONE_LEFT), priority=0) == (ReasonCode.RESOURCES, None)
    assert kept_by(budgets(NONE_LEFT), preemptible=False) == (ReasonCode.RESOURCES, None)


def test_a_job_that_waits_for_quota_names_the_budget_that_keeps_jobs_of_its_queues():
    running = job("r", gpus=4, at=[replica(gpus=range(4))])
    queues = [queue("q", nominal=4)]

    reason = reason_of(
        job("w", gpus=4, priority=5), running, nodes=cluster(1), queues=queues, policy=budgets(NONE_LEFT)
    )

    assert reason.code is ReasonCode.WAITING_FOR_QUOTA
    assert reason.numbers["disruption_budgets"] == "b"
