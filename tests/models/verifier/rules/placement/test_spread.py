from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

NODES = (
    node("n0", zone="z0", rack="r0"),
    node("n1", zone="z0", rack="r0"),
    node("n2", zone="z0", rack="r1"),
    node("n3", zone="z1", rack="r0"),
    node("n4", zone="z0"),
    node("n5", zone="z0"),
)


def on(*names):
    return [replica(name, gpus=(index,)) for index, name in enumerate(names)]


def judge_on(level, most, *names):
    wants = job("a", gpus=1, replicas=len(names), spread={"level": level, "max": most})
    return judge(snapshot(nodes=NODES, jobs=[wants]), placement("a", *on(*names)))


def wrong(found, allowed):
    return broken(Rule.SPREAD, "job a", found, allowed)


def test_as_many_replicas_as_allowed_may_share_a_domain():
    assert judge_on("node", 1, "n0", "n1", "n2") == ()
    assert judge_on("node", 2, "n0", "n0", "n1") == ()
    assert judge_on("rack", 2, "n0", "n1", "n2", "n2") == ()


def test_one_replica_more_may_not():
    assert judge_on("node", 1, "n0", "n0") == wrong("2 replicas on node n0", "at most 1 replica")
    assert judge_on("rack", 2, "n0", "n1", "n0") == wrong("3 replicas in rack r0", "at most 2 replicas")
    assert judge_on("zone", 1, "n0", "n2") == wrong("2 replicas in zone z0", "at most 1 replica")


def test_every_domain_is_judged():
    assert [each.found for each in judge_on("node", 1, "n0", "n0", "n1", "n2", "n2")] == [
        "2 replicas on node n0",
        "2 replicas on node n2",
    ]


def test_racks_of_the_same_name_in_two_zones_differ():
    assert judge_on("rack", 1, "n0", "n3") == ()


def test_a_node_in_no_domain_of_the_level_is_its_own():
    assert judge_on("rack", 1, "n0", "n4", "n5") == ()
    assert judge_on("rack", 1, "n4", "n4") == wrong("2 replicas on node n4", "at most 1 replica")


def test_a_running_job_is_where_it_is():
    runs = job("a", gpus=1, replicas=2, spread={"max": 1}, at=on("n0", "n0"))

    assert judge(snapshot(nodes=NODES, jobs=[runs]), runs.placement) == ()


def test_a_running_job_that_moves_or_shrinks_is_judged_as_it_will_be():
    at = on("n0", "n0", "n1")
    runs = job("a", gpus=1, replicas=(1, 3), spread={"max": 1}, at=at)
    world = snapshot(nodes=NODES, jobs=[runs])
    told = wrong("2 replicas on node n0", "at most 1 replica")

    assert judge(world, placement("a", at[0], at[2])) == ()
    assert judge(world, placement("a", at[0], at[1])) == told
    assert judge(world, placement("a", *on("n0", "n1", "n2")), policy=rules(migrate=True)) == ()
    assert judge(world, placement("a", *on("n0", "n0", "n2")), policy=rules(migrate=True)) == told
