"""When greedy opens nodes of pools, and when it removes them."""

from __future__ import annotations

from gpuplan.models.policy.policy import Policy, PoolPolicy, Prices
from tests.support.builders import build
from tests.support.harness.greedy_plans import plan

POLICY = build.by_value(prices=Prices(scaling=0))


def world(*, jobs=(), nodes=(), price=3.0, queues=None, **pool):
    """Some nodes, and a pool of nodes with four GPUs that cost 100 points for each unit of the price."""
    template = build.node("p", gpus=4, price_per_hour=price)
    own = [template.model_copy(update={"name": name, "pool": "p"}) for name in pool.pop("own", ())]
    snapshot = build.snapshot(nodes=[*nodes, *own], jobs=jobs, queues=queues)
    update = {"pools": (build.pool("p", template=template, **pool),)}
    return snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update=update)})


def added(planned):
    return [node.name for node in planned.target.added]


def test_node_is_opened_for_jobs_that_together_pay_for_it():
    assert added(plan(world(jobs=[build.job(name, gpus=1) for name in "abcd"]), POLICY)) == ["p-1"]


def test_node_is_not_opened_for_jobs_that_together_do_not_pay_for_it():
    planned = plan(world(jobs=[build.job(name, gpus=1) for name in "abc"]), POLICY)

    assert (added(planned), planned.places) == ([], {})


def test_no_more_nodes_are_opened_than_pay():
    jobs = [build.job(f"j{index}", gpus=1) for index in range(10)]

    assert len(added(plan(world(jobs=jobs), POLICY))) == 2


def test_no_more_nodes_are_opened_than_the_pool_may_have():
    jobs = [build.job(f"j{index}", gpus=4) for index in range(5)]

    assert added(plan(world(jobs=jobs, own=("p-2",), most=3), POLICY)) == ["p-1", "p-3"]


def test_gang_opens_as_many_nodes_as_it_needs():
    assert added(plan(world(jobs=[build.job(gpus=4, replicas=3)]), POLICY)) == ["p-1", "p-2", "p-3"]


def test_gang_uses_what_there_is_before_it_opens_nodes():
    planned = plan(world(jobs=[build.job(gpus=4, replicas=3)], nodes=[build.node(gpus=8)]), POLICY)

    assert added(planned) == ["p-1"]


def test_elastic_gang_does_without_nodes_that_it_does_not_pay_for():
    planned = plan(world(jobs=[build.job(gpus=1, replicas=(1, 6))]), POLICY)

    assert added(planned) == ["p-1"]
    assert len(planned.places["a"].replicas) == 4


def test_quota_keeps_nodes_unopened():
    snapshot = world(jobs=[build.job("a", gpus=4)], queues=[build.queue("q", nominal=3)])

    assert added(plan(snapshot, POLICY)) == []


def test_preempting_is_tried_where_opening_costs_more():
    jobs = [
        build.job("r", gpus=4, at=[build.replica(gpus=range(4))]),
        build.job("a", gpus=4, priority=20),
    ]

    planned = plan(world(jobs=jobs, nodes=[build.node(gpus=4)], price=60.0), POLICY)

    assert (added(planned), set(planned.places)) == ([], {"a"})


def test_opening_is_tried_where_preempting_costs_more():
    jobs = [
        build.job("r", gpus=4, at=[build.replica(gpus=range(4))]),
        build.job("a", gpus=4, priority=20),
    ]

    planned = plan(world(jobs=jobs, nodes=[build.node(gpus=4)]), POLICY)

    assert (added(planned), set(planned.places)) == (["p-1"], {"r", "a"})


def test_idle_node_is_removed_while_the_pool_keeps_its_minimum():
    planned = plan(world(own=("p-1", "p-2", "p-3"), least=1), POLICY)

    assert planned.target.removed == ("p-1", "p-2")
    assert planned.points == 600


def test_node_in_use_is_not_removed():
    jobs = [
        build.job("r", gpus=1, at=[build.replica("p-1", gpus=[0])]),
        build.job("a", gpus=1, node_selector={}),
    ]

    planned = plan(world(jobs=jobs, own=("p-1", "p-2")), POLICY)

    assert planned.target.removed == ("p-2",)


def test_nothing_is_opened_or_removed_where_that_is_not_allowed():
    snapshot = world(jobs=[build.job(name, gpus=4) for name in "ab"], own=("p-1", "p-2", "p-3"))
    policy = Policy(prices=Prices(scaling=0), pools=PoolPolicy(scale_up=False, scale_down=False))

    planned = plan(snapshot, policy)

    assert (added(planned), planned.target.removed) == ([], ())
