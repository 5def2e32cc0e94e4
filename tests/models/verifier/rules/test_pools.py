from datetime import timedelta

from gpuplan.models.cluster import Gpu, NodeGpus
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy, PoolPolicy
from tests.support.builders.build import job, node, placement, pool, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

SPOT = node("spot", zone="z0", labels={"kind": "spot"})
OLD = [node(f"spot-{number}", zone="z0", labels={"kind": "spot"}, pool="spot") for number in range(3)]


def new(name="spot-9", **more):
    return SPOT.model_copy(update={"name": name, "pool": "spot"} | more)


def world(*, least=1, most=4, nodes=(), **more):
    """Two nodes of no pool and three of a pool of one to four."""
    return snapshot(
        nodes=[node("n0"), node("n1"), *OLD, *nodes],
        pools=[pool("spot", template=SPOT, least=least, most=most)],
        **more,
    )


def wrong(subject, found, allowed):
    return broken(Rule.POOLS, subject, found, allowed)


def unlike(subject, fields):
    return wrong(subject, f"added with another {fields}", "the same as the template of pool spot")


def not_there(subject):
    return wrong(subject, "removed, but no such node", "a node of the snapshot")


# --- added -------------------------------------------------------------------------------------------------


def test_a_pool_may_get_a_node_like_its_template():
    assert judge(world(), added=(new(),)) == ()


def test_a_job_may_start_on_an_added_node():
    wants = world(jobs=[job(gpus=1)])

    assert judge(wants, placement("a", replica("spot-9", gpus=(0,))), added=(new(),)) == ()


def test_a_template_that_names_its_pool_or_waits_to_be_ready_makes_the_same_nodes():
    template = SPOT.model_copy(update={"pool": "spot", "ready_at": snapshot().taken_at})
    pooled = snapshot(pools=[pool("spot", template=template)])

    assert judge(pooled, added=(new(),)) == ()
    assert judge(pooled, added=(template.model_copy(update={"name": "x"}),)) == unlike("node x", "ready_at")


def test_a_pool_with_names_gets_nodes_of_these_names_only():
    named = snapshot(pools=[pool("spot", template=SPOT, names=("spot-7", "spot-8"), most=2)])

    assert judge(named, added=(new("spot-7"), new("spot-8"))) == ()
    assert judge(named, added=(new(),)) == wrong(
        "node spot-9", "added", "a name of pool spot: spot-7, spot-8"
    )


def test_nothing_is_added_where_the_policy_does_not_scale_up():
    policy = Policy(pools=PoolPolicy(scale_up=False))

    assert judge(world(), added=(new(),), policy=policy) == wrong(
        "node spot-9", "added", "no new nodes, since pools.scale_up is off"
    )


def test_an_added_node_is_of_a_pool_of_the_cluster():
    assert judge(world(), added=(new(pool="other"),)) == wrong(
        "node spot-9", "added to pool other, which does not exist", "a pool of the cluster"
    )
    assert judge(world(), added=(new(pool=None),)) == wrong(
        "node spot-9", "added to no pool", "a pool of the cluster"
    )


def test_an_added_node_is_like_its_pools_template():
    larger = NodeGpus(model="H100-80GB", count=8, memory_mib=81559, details=(Gpu(index=0, mig=()),))

    assert judge(world(), added=(new(gpus=larger, cpu_milli=1),)) == unlike("node spot-9", "cpus, gpus")
    assert judge(world(), added=(new(labels={}),)) == unlike("node spot-9", "labels")


def test_an_added_node_has_a_new_name():
    assert judge(world(most=9), added=(new("n0"),)) == wrong("node n0", "added, but it exists", "a new name")
    assert judge(world(most=9), added=(new(), new())) == wrong(
        "node spot-9", "added 2 times", "a name of its own"
    )


def test_the_node_that_exists_is_the_one_that_counts():
    tiny = world(jobs=[job(gpus=1)]).cluster.node_by_name["n0"].model_copy(update={"cordoned": True})
    closed = snapshot(nodes=[tiny], jobs=[job(gpus=1)], pools=[pool("spot", template=SPOT)])

    found = judge(closed, placement("a", replica("n0", gpus=(0,))), added=(new("n0"),))

    assert [each.rule for each in found] == [Rule.POOLS, Rule.SELECTION]


def test_a_pool_does_not_grow_beyond_its_maximum():
    assert judge(world(most=5), added=(new("x"), new("y"))) == ()
    assert judge(world(most=4), added=(new("x"), new("y"))) == wrong(
        "pool spot", "5 nodes", "at most 4 nodes"
    )
    assert judge(world(most=4), added=(new("x"), new("y")), removed=("spot-0",)) == ()


def test_a_pool_that_is_too_large_already_is_left_alone_unless_it_grows():
    assert judge(world(most=1)) == ()
    assert judge(world(most=1), removed=("spot-0",)) == ()
    assert judge(world(most=1), added=(new(),)) == wrong("pool spot", "4 nodes", "at most 1 node")


def scaled(*, added=None, removed=None, **more):
    """The world, its pool given a node, or one back, so many minutes ago."""
    taken_at = snapshot().taken_at
    found = world(**more)
    (before,) = found.cluster.pools
    times = {"node_added_at": added, "node_removed_at": removed}
    times = {field: taken_at - timedelta(minutes=ago) for field, ago in times.items() if ago is not None}
    pools = (before.model_copy(update=times),)
    return found.model_copy(update={"cluster": found.cluster.model_copy(update={"pools": pools})})


def test_a_pool_that_gave_a_node_back_is_given_none_for_a_while():
    assert judge(scaled(removed=59), added=(new(),)) == wrong(
        "pool spot", "gets a node 59m after it lost one", "not before 1h have passed"
    )
    assert judge(scaled(removed=60), added=(new(),)) == ()
    assert judge(scaled(removed=59), removed=("spot-0",)) == ()
    assert judge(scaled(added=0), added=(new(),)) == ()


def test_a_pool_that_was_given_a_node_gives_none_back_for_a_while():
    assert judge(scaled(added=59), removed=("spot-0",)) == wrong(
        "pool spot", "loses a node 59m after it got one", "not before 1h have passed"
    )
    assert judge(scaled(added=60), removed=("spot-0",)) == ()


def test_the_policy_says_for_how_long_a_pool_keeps_its_nodes():
    delays = {"scale_up_delay_after_remove": "10m", "scale_down_delay_after_add": "20m"}
    policy = Policy(pools=PoolPolicy(**delays))

    assert judge(scaled(removed=10), added=(new(),), policy=policy) == ()
    assert len(judge(scaled(removed=9), added=(new(),), policy=policy)) == 1
    assert judge(scaled(added=20), removed=("spot-0",), policy=policy) == ()
    assert len(judge(scaled(added=19), removed=("spot-0",), policy=policy)) == 1


def test_each_pool_counts_its_own_nodes():
    pools = [pool("spot", template=SPOT, most=1), pool("other", template=node("other"), most=0)]
    two = snapshot(pools=pools)
    other = node("other-1", pool="other")

    assert judge(two, added=(new(),)) == ()
    assert judge(two, added=(new(), other)) == wrong("pool other", "1 node", "at most 0 nodes")


# --- removed -----------------------------------------------------------------------------------------------


def test_an_empty_node_of_a_pool_may_be_removed():
    assert judge(world(), removed=("spot-0", "spot-2")) == ()


def test_nothing_is_removed_where_the_policy_does_not_scale_down():
    policy = Policy(pools=PoolPolicy(scale_down=False))

    assert judge(world(), removed=("spot-0",), policy=policy) == wrong(
        "node spot-0", "removed", "all nodes stay, since pools.scale_down is off"
    )


def test_a_removed_node_is_there_and_removed_once():
    assert judge(world(), removed=("gone",)) == not_there("node gone")
    assert judge(world(), removed=("spot-0", "spot-0")) == wrong("node spot-0", "removed 2 times", "once")


def test_an_added_node_is_not_removed():
    assert judge(world(), added=(new(),), removed=("spot-9",)) == not_there("node spot-9")


def test_a_removed_node_is_of_a_pool_of_the_cluster():
    strange = node("odd", pool="other")

    assert judge(world(), removed=("n0",)) == wrong(
        "node n0", "removed from no pool", "a node of a pool of the cluster"
    )
    assert judge(world(nodes=[strange]), removed=("odd",)) == wrong(
        "node odd", "removed from pool other, which does not exist", "a node of a pool of the cluster"
    )


def test_a_removed_node_takes_jobs():
    for state in ({"cordoned": True}, {"drain": True}, {"ready": False}):
        closed = OLD[0].model_copy(update={"name": "closed"} | state)

        assert judge(world(nodes=[closed]), removed=("closed",)) == wrong(
            "node closed", "removed, but takes no jobs", "a node that takes jobs"
        )


def test_a_removed_node_is_empty():
    runs = job("r", gpus=1, at=[replica("spot-0", gpus=(0,))])
    waits = job("a", gpus=1)
    starts = placement("a", replica("spot-0", gpus=(1,)))

    moved = placement("r", replica("spot-1", gpus=(0,)))
    migrate = rules(migrate=True)

    assert judge(world(jobs=[runs]), moved, removed=("spot-0",), policy=migrate) == ()
    assert judge(world(jobs=[runs]), removed=("spot-0",)) == wrong(
        "node spot-0", "removed after r had to give up replicas", "a node emptied by moves only"
    )
    assert judge(world(jobs=[runs]), runs.placement, removed=("spot-0",)) == wrong(
        "node spot-0", "removed with r", "an empty node"
    )
    assert judge(world(jobs=[runs, waits]), runs.placement, starts, removed=("spot-0",)) == wrong(
        "node spot-0", "removed with a, r", "an empty node"
    )


def test_a_pool_does_not_shrink_below_its_minimum():
    assert judge(world(least=2), removed=("spot-0",)) == ()
    assert judge(world(least=3), removed=("spot-0",)) == wrong("pool spot", "2 nodes", "at least 3 nodes")
    assert judge(world(least=3), added=(new(),), removed=("spot-0",)) == ()


def test_a_pool_that_is_too_small_already_is_left_alone_unless_it_shrinks():
    assert judge(world(least=4)) == ()
    assert judge(world(least=5, most=9), added=(new(),)) == ()
    assert judge(world(least=5, most=9), added=(new(),), removed=("spot-0",)) == wrong(
        "pool spot", "3 nodes", "at least 5 nodes"
    )
