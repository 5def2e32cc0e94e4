from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

NODES = (
    node("n0", zone="z0", rack="r0", nvlink_island="i0"),
    node("n1", zone="z0", rack="r0"),
    node("n2", zone="z0", rack="r1"),
    node("n3", zone="z1", rack="r0"),
    node("n4", zone="z0"),
)


def judge_on(level, *names, replicas=None):
    wants = job("a", gpus=1, replicas=len(names), locality={"required": level} if level else {})
    placed = placement("a", *(replica(name, gpus=(index,)) for index, name in enumerate(names)))
    return judge(snapshot(nodes=NODES, jobs=[wants]), placed)


def wrong(found, allowed):
    return broken(Rule.LOCALITY, "job a", found, allowed)


def test_replicas_in_one_domain_are_legal():
    assert judge_on("rack", "n0", "n1", "n0") == ()
    assert judge_on("zone", "n0", "n2") == ()


def test_without_a_required_level_replicas_may_be_anywhere():
    assert judge_on(None, "n0", "n2", "n3", "n4") == ()


def test_replicas_in_two_racks_are_not_in_one():
    assert judge_on("rack", "n0", "n2") == wrong("2 racks", "1 rack")


def test_racks_of_the_same_name_in_two_zones_differ():
    assert judge_on("rack", "n0", "n3") == wrong("2 racks", "1 rack")
    assert judge_on("zone", "n0", "n2", "n3") == wrong("2 zones", "1 zone")


def test_level_node_means_one_node():
    assert judge_on("node", "n0", "n0") == ()
    assert judge_on("node", "n0", "n1", "n2") == wrong("3 nodes", "1 node")


def test_a_node_outside_every_domain_of_the_level_is_in_none_with_others():
    assert judge_on("rack", "n1", "n4") == wrong("nodes in no rack: n4", "1 rack")
    assert judge_on("nvlink_island", "n0", "n1") == wrong("nodes in no NVLink island: n1", "1 NVLink island")
    assert judge_on("nvlink_island", "n1", "n2") == wrong(
        "nodes in no NVLink island: n1, n2", "1 NVLink island"
    )


def test_one_node_alone_satisfies_every_level():
    assert judge_on("rack", "n4", "n4") == ()
    assert judge_on("nvlink_island", "n1") == ()


def test_a_preferred_level_is_no_rule():
    wants = job("a", gpus=1, replicas=2, locality={"preferred": "rack"})
    placed = placement("a", replica("n0", gpus=(0,)), replica("n2", gpus=(0,)))

    assert judge(snapshot(nodes=NODES, jobs=[wants]), placed) == ()


def test_a_running_job_is_where_it_is():
    at = [replica("n0", gpus=(0,)), replica("n2", gpus=(0,))]
    runs = job("a", gpus=1, replicas=2, locality={"required": "rack"}, at=at)

    assert judge(snapshot(nodes=NODES, jobs=[runs]), runs.placement) == ()


def test_a_running_job_that_moves_is_judged_where_it_will_be():
    at = [replica("n0", gpus=(0,)), replica("n2", gpus=(0,))]
    runs = job("a", gpus=1, replicas=2, locality={"required": "rack"}, at=at)
    world = snapshot(nodes=NODES, jobs=[runs])

    together = placement("a", at[0], replica("n1", gpus=(0,)))
    still_apart = placement("a", at[0], replica("n2", gpus=(1,)))

    assert judge(world, together, policy=rules(migrate=True)) == ()
    assert judge(world, still_apart, policy=rules(migrate=True)) == wrong("2 racks", "1 rack")


def test_a_running_job_that_shrinks_is_judged_as_it_will_be():
    at = [replica("n0", gpus=(0,)), replica("n1", gpus=(0,)), replica("n2", gpus=(0,))]
    runs = job("a", gpus=1, replicas=(1, 3), locality={"required": "rack"}, at=at)
    world = snapshot(nodes=NODES, jobs=[runs])

    assert judge(world, placement("a", *at[:2])) == ()
    assert judge(world, placement("a", *at[1:])) == wrong("2 racks", "1 rack")
