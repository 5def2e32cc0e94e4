"""Reasons of changes that a reviewer cannot see from places alone: which, how much, for which jobs."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.cluster import RackPower
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders.build import NOW, job, node, placement, pool, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.strategies import instances

EIGHT = range(8)


def reason(plan, id_):
    return next(action for action in plan.actions if action.id == id_).reason


def runs(name, node, *gpus, **more):
    return job(name, gpus=len(gpus), at=[replica(node, gpus=gpus)], **more)


def test_a_job_gives_up_quota_for_a_job_that_starts_elsewhere():
    queues = [queue("all", nominal=8), queue("q", parent="all"), queue("r", parent="all"), queue("s")]
    waiting = [job("a", gpus=6, priority=5, queue="r"), job("b", gpus=2, queue="s")]
    world = snapshot(queues=queues, jobs=[runs("old", "n0", *range(4), queue="q"), *waiting])

    plan = drafted(
        world,
        placement("a", replica("n1", gpus=range(6))),
        placement("b", replica("n1", gpus=(6, 7))),
        stopped=["old"],
    )

    found = reason(plan, "preempt/old")
    assert found.code is ReasonCode.MAKES_ROOM
    assert found.numbers["makes_room_for"] == "a"
    assert (found.numbers["queue"], found.numbers["gpus"]) == ("all", 4)
    assert found.text.startswith("frees 4 GPUs of queue all for a;")
    waits = next(each for each in plan.waiting if each.job == "old")
    assert waits.reason.numbers == {"makes_room_for": "a"}
    taker = reason(plan, "start/a")
    assert taker.text.endswith("; uses quota of queue all that old frees")
    assert taker.numbers["takes_the_place_of"] == "old"
    assert "takes_the_place_of" not in reason(plan, "start/b").numbers


def test_quota_is_given_up_for_the_job_that_uses_it_and_not_for_one_that_starts_on_the_same_node():
    queues = [queue("q", nominal=8), queue("s")]
    waiting = [job("a", gpus=8, priority=5, queue="q"), job("b", gpus=2, queue="s")]
    world = snapshot(queues=queues, jobs=[runs("old", "n0", *range(4), queue="q"), *waiting])

    plan = drafted(
        world,
        placement("a", replica("n1", gpus=EIGHT)),
        placement("b", replica("n0", gpus=(6, 7))),
        stopped=["old"],
    )

    found = reason(plan, "preempt/old")
    assert found.numbers["makes_room_for"] == "a"
    assert (found.numbers["queue"], found.numbers["gpus"]) == ("q", 4)


def test_a_job_names_the_first_of_those_that_give_up_quota_for_it():
    waiting = job("a", gpus=6, priority=5)
    old = [runs(f"old-{number}", "n0", number) for number in range(4)]
    world = snapshot(queues=[queue("q", nominal=6)], jobs=[*old, waiting])

    plan = drafted(world, placement("a", replica("n1", gpus=range(6))), stopped=[each.name for each in old])

    taker = reason(plan, "start/a")
    assert taker.text.endswith("; uses quota of queue q that old-0, old-1 and 2 more free")
    assert taker.numbers["takes_the_place_of"] == "old-0, old-1, old-2, old-3"


def test_a_move_gives_up_the_quota_of_a_gpu_model():
    queues = [queue("q", nominal=100, **{"H100-80GB": 8})]
    nodes = [node("n0"), node("n1"), node("t0", model="T4")]
    world = snapshot(nodes=nodes, queues=queues, jobs=[runs("old", "n0", 0, 1), job("a", gpus=8)])

    plan = drafted(
        world, placement("old", replica("t0", gpus=(0, 1))), placement("a", replica("n1", gpus=EIGHT))
    )

    found = reason(plan, "migrate/old")
    assert found.code is ReasonCode.MAKES_ROOM
    assert (found.numbers["queue"], found.numbers["gpus"]) == ("q", 2)
    assert found.numbers["makes_room_for"] == "a"


def test_a_job_gives_up_power_of_its_rack():
    nodes = [node(name, rack="r7", watts=700) for name in ("n0", "n1")]
    caps = (RackPower(rack="r7", watts=8 * 700),)
    world = snapshot(
        nodes=nodes, rack_power=caps, jobs=[runs("old", "n0", 0, 1), job("a", gpus=8, priority=5)]
    )

    plan = drafted(world, placement("a", replica("n1", gpus=EIGHT)), stopped=["old"])

    found = reason(plan, "preempt/old")
    assert found.text.startswith("frees 1,400 W of rack r7 for a")
    assert (found.numbers["rack"], found.numbers["watts"]) == ("r7", 1400)
    assert reason(plan, "start/a").text.endswith("; uses power of rack r7 that old frees")


def test_a_move_that_leaves_larger_blocks_says_where_and_what_they_are_worth():
    world = snapshot(jobs=[runs("old", "n0", 0), runs("other", "n1", 0)])
    policy = Policy(prices=Prices(fragmentation=10))

    plan = drafted(world, placement("old", replica("n1", gpus=(1,))), policy=policy)

    found = reason(plan, "migrate/old")
    assert found.code is ReasonCode.MOVED
    # Seven GPUs are left over on either node before, and six on one of them after.
    assert found.text.startswith("leaves GPUs free in larger blocks on n0, worth 80 points;")
    assert found.numbers["fragmentation_points"] == 80


def test_a_change_that_nothing_explains_alone_is_part_of_the_others():
    plan = drafted(snapshot(jobs=[runs("old", "n0", 0), runs("gone", "n1", 1)]), stopped=["gone"])

    assert reason(plan, "preempt/gone").text.startswith("so that other changes of this plan fit;")


def test_a_job_that_comes_to_a_repartitioned_gpu_is_always_named():
    nodes = [node("n0", model="A100-80GB", mig={0: [("7g.80gb", 0)]}, gpus=1)]
    world = snapshot(nodes=nodes, jobs=[job("a", mig={"3g.40gb": 1})])

    plan = drafted(world, placement("a", replica("n0", mig=[(0, "3g.40gb", 0)])))

    assert reason(plan, "repartition/n0/gpu0").text == "for a"


@pytest.mark.parametrize(("drained", "then"), [(True, "drained"), (False, "removed")])
def test_a_drain_says_what_for(drained, then):
    nodes = [node("n0", pool="p", drain=drained), node("n1", pool="p")]
    world = snapshot(nodes=nodes, pools=(pool("p", most=4),), jobs=[runs("old", "n0", 0)])

    plan = drafted(world, placement("old", replica("n1", gpus=(0,))), removed=() if drained else ("n0",))

    assert reason(plan, "drain/n0").text == f"confirms that old has left a node to be {then}"


def test_a_new_node_without_jobs_is_for_the_least_that_its_pool_keeps():
    new = node("p-1", pool="p", price_per_hour=2)
    least = pool("p", template=node("p", price_per_hour=2), least=1, most=4)

    plan = drafted(snapshot(pools=(least,)), added=[new])

    assert reason(plan, "scale_up/p-1").text == "pool p keeps at least 1 node; costs 2.00/h"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_what_the_lines_say_of_disruption_adds_up_to_the_terms_of_the_objective(number):
    instance = instances.everything(number)
    policy = instance.policy.model_copy(update={"solvers": ()})
    plan = plan_epoch(instance.snapshot, policy, seed=0, created_at=NOW)
    told = Counter()
    for action in plan.actions:
        points = action.reason.numbers.get("disruption_points", 0)
        told[{"preempt": "preemption", "migrate": "migration"}.get(action.type, "resize")] += points

    assert dict(+-told) == {
        name: -plan.solution.terms[name]
        for name in ("preemption", "migration", "resize")
        if plan.solution.terms.get(name)
    }
