from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import job, node, placement, pool, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, sliced

CAPPED = node("n0", watts=700, power_cap_watts=2100)


def judge_on(node, gpus=0, *, milli=0, running=(), **about):
    """A job starts on so many GPUs, or on a share of one, beside jobs that run on one GPU each."""
    runs = [job(f"r{index}", gpus=1, at=[replica(gpus=(index,))]) for index in running]
    indices = range(len(runs), len(runs) + (gpus or 1))
    starts = placement("a", replica(gpus=indices, milli=milli or 1000))
    world = snapshot(
        nodes=[node, *about.pop("others", ())], jobs=[*runs, job(gpus=gpus, milli=milli)], **about
    )
    return judge(world, *(one.placement for one in runs), *([starts] if gpus or milli else []))


def wrong(found, allowed, subject="node n0"):
    return broken(Rule.POWER, subject, found, allowed)


def test_gpus_may_draw_all_the_power_of_a_node():
    assert judge_on(CAPPED, 3) == ()


def test_they_may_not_draw_more():
    assert judge_on(CAPPED, 4) == wrong("2800 W", "2100 W")


def test_running_jobs_count():
    assert judge_on(CAPPED, 2, running=(0,)) == ()
    assert judge_on(CAPPED, 3, running=(0,)) == wrong("2800 W", "2100 W")


def test_a_share_draws_its_share():
    assert judge_on(node(watts=700, power_cap_watts=350), milli=500) == ()
    assert judge_on(node(watts=700, power_cap_watts=350), milli=501) == wrong("350.7 W", "350 W")


def test_a_mig_instance_draws_by_its_compute_slices():
    world = node(watts=700, power_cap_watts=300, mig={0: (("3g.40gb", 0), ("1g.10gb", 4))})
    wants = job(mig={"3g.40gb": 1})
    more = job("b", mig={"1g.10gb": 1})
    held = placement("a", sliced(replica(), (0, "3g.40gb", 0)))
    beside = placement("b", sliced(replica(), (0, "1g.10gb", 4)))

    assert judge(snapshot(nodes=[world], jobs=[wants, more]), held) == ()
    assert judge(snapshot(nodes=[world], jobs=[wants, more]), held, beside) == wrong("399 W", "300 W")


def test_without_a_cap_or_known_watts_nothing_is_judged():
    assert judge_on(node(watts=700), 8) == ()
    assert judge_on(node(power_cap_watts=1), 8) == ()


def test_what_running_jobs_already_draw_they_go_on_drawing():
    assert judge_on(CAPPED, running=range(5)) == ()


def test_nothing_comes_to_a_node_that_draws_too_much():
    assert judge_on(CAPPED, 1, running=range(5)) == wrong("4200 W", "3500 W")


def test_a_job_without_gpus_draws_nothing():
    runs = [job(f"r{index}", gpus=1, at=[replica(gpus=(index,))]) for index in range(5)]
    world = snapshot(nodes=[CAPPED], jobs=[*runs, job(cpus=1)])

    assert judge(world, *(one.placement for one in runs), placement("a", replica(cpus=1))) == ()


def test_after_a_job_left_no_more_may_come_than_the_cap_allows():
    runs = [job(f"r{index}", gpus=1, at=[replica(gpus=(index,))]) for index in range(5)]
    world = snapshot(nodes=[CAPPED], jobs=[*runs, job(gpus=1, priority=1)])
    stay = [one.placement for one in runs]

    assert judge(world, *stay[1:]) == ()
    assert judge(world, *stay[4:], placement("a", replica(gpus=(0,)))) == ()
    assert {each.rule for each in judge(world, *stay[1:], placement("a", replica(gpus=(0,))))} == {Rule.POWER}


# --- racks -------------------------------------------------------------------------------------------------

RACK = {"rack": "r0", "zone": "z0", "region": "eu"}


def in_rack(name, watts=700, **more):
    return node(name, watts=watts, **(RACK | more))


def judge_rack(*names, nodes, watts=1500, **more):
    world = snapshot(
        nodes=nodes,
        jobs=[job(gpus=1, replicas=len(names))],
        rack_power=[RACK | {"watts": watts}],
        **more,
    )
    added = tuple(one for one in nodes if one.pool)
    kept = tuple(one for one in nodes if not one.pool)
    if added:
        world = world.model_copy(update={"cluster": world.cluster.model_copy(update={"nodes": kept})})
    held = placement("a", *(replica(name, gpus=(number,)) for number, name in enumerate(names)))
    return judge(world, held, added=added)


def test_the_nodes_of_a_rack_draw_together():
    nodes = [in_rack("n0"), in_rack("n1", watts=800)]

    assert judge_rack("n0", "n1", nodes=nodes) == ()
    assert judge_rack("n0", "n1", nodes=nodes, watts=1499) == wrong("1500 W", "1499 W", "rack r0")
    assert judge_rack("n0", "n0", "n1", nodes=nodes) == wrong("2200 W", "1500 W", "rack r0")


def test_racks_of_the_same_name_elsewhere_are_others():
    nodes = [in_rack("n0"), in_rack("n1", zone="z1"), in_rack("n2", region="us"), in_rack("n3", rack="r1")]

    assert judge_rack("n0", "n1", "n2", "n3", nodes=nodes) == ()


def test_added_nodes_draw_too():
    template = in_rack("spot")
    nodes = [in_rack("n0"), template.model_copy(update={"name": "spot-1", "pool": "spot"})]

    assert judge_rack("n0", "spot-1", nodes=nodes, pools=[pool(template=template)]) == ()
    assert judge_rack("n0", "spot-1", "spot-1", nodes=nodes, pools=[pool(template=template)]) == wrong(
        "2100 W", "1500 W", "rack r0"
    )


def test_what_a_rack_already_draws_it_goes_on_drawing():
    runs = job("r", gpus=1, replicas=3, at=[replica(gpus=(index,)) for index in range(3)])
    world = snapshot(
        nodes=[in_rack("n0"), in_rack("n1")], jobs=[runs, job(gpus=1)], rack_power=[RACK | {"watts": 1500}]
    )

    assert judge(world, runs.placement) == ()
    assert judge(world, runs.placement, placement("a", replica("n1", gpus=(0,)))) == wrong(
        "2800 W", "2100 W", "rack r0"
    )
