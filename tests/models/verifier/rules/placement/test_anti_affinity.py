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
WEB = {"app": "web"}


def avoids(name="a", *, at=None, level="node", labels=WEB, **more):
    return job(name, cpus=1, at=at, anti_affinity=({"labels": labels, "level": level},), **more)


def web(name="b", *, at=None, **labels):
    return job(name, cpus=1, at=at, labels=WEB | labels)


def on(*names):
    return [replica(name, cpus=1) for name in names]


def judge_both(one, other, here, there, **more):
    world = snapshot(nodes=NODES, jobs=[one, other])
    return judge(world, placement(one.name, *on(here)), placement(other.name, *on(there)), **more)


def wrong(where, *, job="a", others="b", label="app=web"):
    return broken(
        Rule.ANTI_AFFINITY, f"job {job}", f"{where} with {others}", f"no other job with {label} there"
    )


def test_a_job_and_one_it_avoids_may_be_apart():
    assert judge_both(avoids(), web(), "n0", "n1") == ()
    assert judge_both(avoids(level="rack"), web(), "n0", "n2") == ()


def test_they_may_not_be_in_one_domain():
    assert judge_both(avoids(), web(), "n0", "n0") == wrong("on node n0")
    assert judge_both(avoids(level="rack"), web(), "n0", "n1") == wrong("in rack r0")
    assert judge_both(avoids(level="zone"), web(), "n0", "n2") == wrong("in zone z0")


def test_racks_of_the_same_name_in_two_zones_differ():
    assert judge_both(avoids(level="rack"), web(), "n0", "n3") == ()


def test_a_node_in_no_domain_of_the_level_is_its_own():
    assert judge_both(avoids(level="rack"), web(), "n4", "n5") == ()
    assert judge_both(avoids(level="rack"), web(), "n4", "n4") == wrong("on node n4")


def test_only_jobs_with_all_the_labels_are_avoided():
    picky = avoids(labels={"app": "web", "tier": "front"})

    assert judge_both(picky, web(), "n0", "n0") == ()
    assert judge_both(picky, web(tier="back"), "n0", "n0") == ()
    assert judge_both(picky, web(tier="front"), "n0", "n0") == wrong(
        "on node n0", label="app=web, tier=front"
    )


def test_a_job_does_not_avoid_itself():
    own = avoids(labels=WEB, replicas=2).model_copy(update={"labels": WEB})

    assert judge(snapshot(nodes=NODES, jobs=[own]), placement("a", *on("n0", "n0"))) == ()


def test_two_that_avoid_each_other_are_both_told():
    one, other = (avoids(name).model_copy(update={"labels": WEB}) for name in "ab")

    assert judge_both(one, other, "n0", "n1") == ()
    assert judge_both(one, other, "n0", "n0") == (
        *wrong("on node n0"),
        *wrong("on node n0", job="b", others="a"),
    )


def test_it_does_not_matter_which_of_the_two_was_there_first():
    told = wrong("on node n0")

    assert judge_both(avoids(at=on("n0")), web(), "n0", "n0") == told
    assert judge_both(avoids(), web(at=on("n0")), "n0", "n0") == told


def test_what_running_jobs_already_do_is_not_the_plans_fault():
    assert judge_both(avoids(at=on("n0")), web(at=on("n0")), "n0", "n0") == ()


def test_nor_is_it_where_a_third_comes_to_them_that_neither_avoids():
    runs = [avoids(at=on("n0")), web(at=on("n0"))]
    world = snapshot(nodes=NODES, jobs=[*runs, job("c", cpus=1)])

    assert judge(world, *(one.placement for one in runs), placement("c", *on("n0"))) == ()


def test_of_several_only_those_that_are_new_are_told():
    runs = [avoids(at=on("n0")), web(at=on("n0"))]
    world = snapshot(nodes=NODES, jobs=[*runs, web("c")])

    found = judge(world, *(one.placement for one in runs), placement("c", *on("n0")))

    assert found == wrong("on node n0", others="c")


def test_a_new_job_is_told_all_that_it_avoids():
    runs = [web("b", at=on("n0")), web("c", at=on("n0"))]
    world = snapshot(nodes=NODES, jobs=[*runs, avoids()])

    found = judge(world, *(one.placement for one in runs), placement("a", *on("n0")))

    assert found == wrong("on node n0", others="b, c")


def test_a_job_that_grows_is_new_only_where_it_grows():
    grows = web(at=on("n0")).model_copy(update={"gang": job(replicas=(1, 3)).gang})
    stays = avoids(at=on("n0", "n1"), replicas=2)
    world = snapshot(nodes=NODES, jobs=[grows, stays])

    assert judge(world, stays.placement, placement("b", *on("n0", "n2"))) == ()
    assert judge(world, stays.placement, placement("b", *on("n0", "n1"))) == wrong("on node n1")


def test_a_job_that_moves_is_new_wherever_it_then_is():
    stays, moves = avoids(at=on("n0")), web(at=on("n1"))
    away = placement("b", *on("n2"))
    world = snapshot(nodes=NODES, jobs=[stays, moves])
    policy = rules(migrate=True)

    assert judge(world, stays.placement, away, policy=policy) == ()
    assert judge_both(stays, moves, "n0", "n0", policy=policy) == wrong("on node n0")


def test_a_job_that_is_gone_is_in_nobodys_way():
    world = snapshot(nodes=NODES, jobs=[web(at=on("n0")), avoids(priority=1)])

    assert judge(world, placement("a", *on("n0"))) == ()
